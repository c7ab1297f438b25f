"""Envoy Gateway: a controller that reads Gateway API and its own kinds of objects, with its Envoy."""
