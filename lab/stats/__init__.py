"""Arrays of numbers → estimates with intervals: histograms, effects, how many blocks to plan, scalability, the search for a knee."""
