"""The step from samples to cells: what was measured of each arm at each point; it decides nothing."""
