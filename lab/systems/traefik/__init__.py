"""Traefik in two ways: configured by a file that the lab writes, and as a controller that reads Ingresses."""
