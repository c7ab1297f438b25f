"""A comparison and what may get worse → a regression, passed, or nobody can tell."""
