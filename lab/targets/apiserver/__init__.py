"""The target `apiserver`: real ingress controllers as processes on this machine, with a real API server but no cluster."""
