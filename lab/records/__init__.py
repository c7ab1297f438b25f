"""Run folders and `data/`: the only package that writes and reads what was measured."""
