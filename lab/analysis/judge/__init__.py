"""The step from measured values to effects and decisions: the only place that decides whether there is a difference."""
