"""The knee of a variant (the highest rate that it serves within its latency bound), and what was the limit there."""
