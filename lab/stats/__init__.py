"""Arrays of numbers → estimates with intervals: histograms, effects, how many blocks to plan, the search for a knee."""
