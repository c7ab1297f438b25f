"""F5's NGINX Ingress Controller."""
