"""kustomize folders → variants and knobs: what to apply, what to read back, what they claim to change."""
