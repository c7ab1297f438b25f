"""Traefik: without a controller by its file provider, and as a controller of Ingresses."""
