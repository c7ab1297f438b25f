"""The migration from ingress-nginx: a successor's counterparts of its settings, and what would differ after the move.

Except for reading the tables, the package does no I/O.
"""
