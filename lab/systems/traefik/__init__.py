"""Traefik: by itself with its file provider, and as a controller of Ingresses."""
