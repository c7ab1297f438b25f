"""The step from decisions to sentences: what a run, a comparison or a gate shows, and what to do about it."""
