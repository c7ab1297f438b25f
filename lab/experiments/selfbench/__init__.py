"""The checks of `just selfbench`: what the lab itself costs, and whether its claims are as good as promised."""
