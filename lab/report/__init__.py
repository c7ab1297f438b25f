"""Output for people and programs: tables, JSON, figures, the HTML report, exports; it decides nothing."""
