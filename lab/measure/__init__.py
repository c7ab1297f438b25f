"""The measuring of samples (each is one load on one running system, with a verdict), and the loop over all planned samples."""
