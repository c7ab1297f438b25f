"""The code for measuring on Kubernetes clusters; the targets `kind` (a local cluster) and `remote` (an existing one) share it."""
