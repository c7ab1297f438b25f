"""Estimates with intervals from arrays of numbers: histograms, effects, power, variance components, knee search."""
