"""The definitions of inputs and records: variants, knobs, sweeps, plans, samples, runs, and reasons of invalidity."""
