"""Samples → cells: what was measured of each arm at each point, and what its numbers may show. Decides nothing."""
