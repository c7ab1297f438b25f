"""F5's NGINX Ingress Controller, whose proxy is an nginx."""
