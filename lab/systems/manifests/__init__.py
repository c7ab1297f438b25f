"""The readers of a variant's manifests, whose objects systems are configured from and the local targets start."""
