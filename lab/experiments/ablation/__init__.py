"""A variant's knobs one at a time and cumulatively: which runs that takes, and their folder."""
