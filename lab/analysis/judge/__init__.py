"""The step from cells to effects and decisions: the only place that decides, with the reason where it does not."""
