"""A benchmark lab for ingress proxies: it measures whether one tuning step mattered against its baseline."""
