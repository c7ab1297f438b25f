"""Exports of runs for other tools: flat tables, and OpenMetrics."""
