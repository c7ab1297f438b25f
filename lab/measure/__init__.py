"""The measuring of a sample (canary, warm-up, load, observation, verdict), and the loop over a plan."""
