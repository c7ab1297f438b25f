"""The migration from ingress-nginx: what a successor has in place of its settings, and the traps in between.

Except for reading the tables, the package does no I/O.
"""
