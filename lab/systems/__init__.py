"""The proxy systems, such as nginx and Envoy: one package with all code for one system, and a table of all systems.

`system` has the interface that a system's package fills in. `table` lists the systems, and targets use this table. The other
modules are shared by several systems: they read manifests, fetch programs, check and load configurations, count workers, and
describe stand-ins (programs that run in place of others).
"""
