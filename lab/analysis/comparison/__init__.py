"""The comparison of two arms (variants), of one run or of two, in every metric: effect, p-value, and what to do."""
