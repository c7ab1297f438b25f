"""Answers as tables, for a terminal and as Markdown."""
