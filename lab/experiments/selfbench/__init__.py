"""What the lab itself costs, and whether its claims are as good as promised: a module for each thing that is measured.

`overhead` a whole run; `reducing` a log of requests to histograms (`rows` makes it, `worker` is the lab's way, `by_hand/` plain
polars); `neighbour` (with `busy`) and `injected` (with `promise`) the two long checks.
"""
