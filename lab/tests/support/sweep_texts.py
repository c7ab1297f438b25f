"""Texts of sweep files that several tests write."""

TINY = """
title = "Tiny"
question = "?"
blocks = 6
[[points]]
name = "ceiling"
generator = "wrk"
connections = 4
duration_s = 1
"""
"""One closed loop, of a second."""
