"""Contour: a controller that reads Ingresses, with the Envoy that it configures."""
