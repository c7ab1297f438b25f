"""ingress-nginx: the keys of its ConfigMap, the nginx.conf that they result in, and the controller itself."""
