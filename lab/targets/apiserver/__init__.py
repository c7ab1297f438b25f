"""The apiserver target: the real controllers as processes against a real API server, without a cluster."""
