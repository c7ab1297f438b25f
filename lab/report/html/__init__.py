"""HTML: what fills templates, and a run's own page."""
