"""The storage of measurements: the only package that writes and reads the folders of runs and the files in `data/`."""
