"""Experiments, one module or package each, that turn a request into a checked plan and a measured run."""
