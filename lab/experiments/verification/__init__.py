"""The verification of a migration: the same requests to ingress-nginx and a successor, with a backend that records them."""
