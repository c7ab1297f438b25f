"""Ablations: the runs that measure the knobs of a variant one at a time and cumulatively, and their folder."""
