"""The step from samples to cells, which have the values of one arm (variant) at one load point; it decides nothing."""
