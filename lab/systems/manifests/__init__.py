"""A variant's manifests → the objects that systems are configured from and that the local targets start."""
