"""Contour: a controller that reads Ingresses, and the Envoy beside it."""
