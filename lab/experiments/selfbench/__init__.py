"""What the lab itself costs, and whether its claims are as good as promised: a module for each check of `just selfbench`."""
