"""Code that runs pods as processes on this machine: it starts, probes, restarts and ends their containers."""
