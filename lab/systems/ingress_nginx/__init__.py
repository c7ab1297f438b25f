"""ingress-nginx: its ConfigMap's keys, the nginx.conf that they make, and the controller itself."""
