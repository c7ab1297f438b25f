"""Ablations: series of runs that measure the knobs (settings) of a variant or study, one at a time and cumulatively."""
