"""Migrations from ingress-nginx: what each successor does with a user's files, as plan, manifests and measurement."""
