"""The proxy systems: one package for each, which holds all the Python that knows this proxy, and one table of them all.

`system` has the interface that a system's package fills in, `table` registers the systems and is what targets ask. The modules beside
them are what several systems share: reading manifests, fetching programs, checking and loading configurations, workers, stand-ins.
"""
