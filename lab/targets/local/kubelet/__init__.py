"""Pods as processes: started from objects, probed, restarted, and ended in time."""
