"""Envoy Gateway: a controller that reads Gateway API and its own objects, and its Envoy."""
