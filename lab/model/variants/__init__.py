"""Variants and knobs (single settings) from kustomize folders: their manifests, their checks, and the effects that they claim."""
