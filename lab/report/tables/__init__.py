"""Table output: results as tables, for a terminal and as Markdown."""
