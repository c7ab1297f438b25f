"""A benchmark lab for ingress proxies: one tuning step, its baseline, and whether the step mattered."""
