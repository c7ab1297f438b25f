"""ingress-nginx: the keys of its ConfigMap, the nginx.conf that results from these keys, and the controller itself."""
