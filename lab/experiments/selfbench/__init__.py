"""The lab's own time against doing the same by hand: a module for each thing that is compared, and one for what came of it.

`report` rows and notes; `overhead` a whole run; `pairs` a sample against a bash loop; `bring_up`; `rows` and `reducing` request
rows to histograms (`worker`, and `by_hand/` plain polars); `neighbour` (with `busy`) and `injected` (with `promise`) the two long checks.
"""
