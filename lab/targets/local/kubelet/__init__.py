"""Pods as processes: started from objects, probed, restarted, ended in time."""
