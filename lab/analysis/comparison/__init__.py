"""Two arms side by side, of one run or of two, in every metric: effect, p, and what to do."""
