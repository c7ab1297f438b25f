"""A Kubernetes cluster as a place to measure: the code that the targets kind and remote share."""
