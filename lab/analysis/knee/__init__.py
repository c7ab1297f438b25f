"""The knee: a search's trials → the highest rate that was served as it should be, and who was the limit."""
