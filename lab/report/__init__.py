"""What a person or a program reads: tables, JSON, figures, the HTML report, exports. Decides nothing."""
