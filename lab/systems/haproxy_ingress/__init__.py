"""haproxytech's Kubernetes Ingress Controller."""
