"""The readers of a variant's Kubernetes manifests: they return the objects that configure proxies, and the pods to start."""
