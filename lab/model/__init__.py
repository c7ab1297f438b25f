"""What is asked and what is recorded: variants, knobs, sweeps, the plan, samples, runs, and the reasons that make a sample invalid."""
