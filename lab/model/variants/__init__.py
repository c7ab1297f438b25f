"""Variants and knobs from kustomize folders: what to apply, what to read back, and what they claim to change."""
