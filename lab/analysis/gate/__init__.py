"""The gate: a comparison and what may get worse → a regression, passed, or inconclusive."""
