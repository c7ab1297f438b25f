"""The proxy systems: one package for each, with all the Python that knows this proxy, and one table of them all.

`system` has the interface that a system's package fills in. `table` lists the systems, and is what targets use. The other
modules are shared by several systems: they read manifests, fetch programs, check and load configurations, and handle workers
and stand-ins.
"""
