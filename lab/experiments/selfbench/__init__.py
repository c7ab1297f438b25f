"""The checks of the lab itself (`just selfbench`): how much time it costs, and how often it detects effects of known size."""
