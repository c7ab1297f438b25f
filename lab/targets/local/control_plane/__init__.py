"""The work of a cluster's control plane while a system changes: pods that come and go, Services, routes, events."""
