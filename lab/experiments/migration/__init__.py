"""Migrations from ingress-nginx to its successors: a plan of the user's settings, manifests, and the variants to measure."""
