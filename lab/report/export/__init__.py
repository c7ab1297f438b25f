"""Runs for other tools: flat tables, and OpenMetrics."""
