"""A Kubernetes cluster as a place to measure: what `--target kind` and `--target remote` share."""
