"""What a cluster's control plane does while a system changes: pods that come and go, Services, routes, reloads, events."""
