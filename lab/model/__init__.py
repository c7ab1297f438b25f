"""The definitions of a benchmark's inputs (variants, their settings, loads) and of its records (plans, samples, runs)."""
