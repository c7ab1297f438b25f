"""A user's own ingress-nginx ConfigMap → knobs: the whole file, each key that differs from what 1.15.1 ships, keys that belong together."""
