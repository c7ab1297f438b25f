"""Helpers that every package may use: errors with a remedy, atomic writes of files, and parsers of quantities and durations."""
