"""`migrate`: a user's ingress-nginx files → what each successor does with them, as a plan, as manifests, as a measurement."""
