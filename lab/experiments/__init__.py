"""Experiments: each module or package checks a request of a user, turns it into a plan, and has it measured."""
