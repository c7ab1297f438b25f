"""The analysis of stored runs, which makes effects, verdicts and other answers from their numbers."""
