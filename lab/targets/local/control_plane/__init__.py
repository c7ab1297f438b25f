"""Code that acts as a cluster's control plane while a system runs: pods that come and go, Services, routes, events."""
