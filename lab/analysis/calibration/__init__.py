"""What was recorded of each generator against a known server → rows and advice."""
