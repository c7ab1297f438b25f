"""Decisions → sentences: what a run, a comparison and a gate say, and what to do about it. Decides nothing."""
