"""Helpers that every package may use: errors with a remedy, complete files, quantities and durations."""
