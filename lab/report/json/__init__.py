"""JSON output: results as plain data with stable keys, and the JSON schemas of this data."""
