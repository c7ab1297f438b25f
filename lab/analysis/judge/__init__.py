"""Cells → effects and decisions: the one place that decides. Says nothing in sentences but why something is not judged."""
