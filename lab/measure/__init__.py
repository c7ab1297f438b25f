"""One sample: canary, warm-up, load, what was seen meanwhile, whether it counts; and the loop over a plan."""
