"""The report: one HTML file of the committed runs that needs nothing else, neither a server nor a network.

`executing` runs a notebook, `parts` turns what its cells showed into HTML, `pages` are the notebooks' own pages; `entries` are the
ledger's, `machines` the runs', `methods` the rest's; `site` puts them into the templates and writes the file. Refuses to hold a
number of its own: what stands there was printed by a notebook's cell, the ledger or a run's record, so that the same data
gives the same bytes.
"""
