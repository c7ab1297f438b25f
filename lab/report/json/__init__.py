"""JSON output: results as plain data with stable keys, and the schemas of it."""
