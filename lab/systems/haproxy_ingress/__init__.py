"""The Kubernetes Ingress Controller of haproxytech, whose proxy is a HAProxy."""
