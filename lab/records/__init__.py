"""The only package that knows run folders and `data/`: what was measured is written and read here."""
