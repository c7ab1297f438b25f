"""The way from a user's ingress-nginx ConfigMap to knobs: the whole file, each changed key, and related keys."""
