"""The report: one HTML file of the committed runs that needs nothing else, neither a server nor a network.

`executing` runs a notebook, `parts` turns what its cells showed into HTML, `pages` are the notebooks' own pages, `methods`
what is known of noise and generators; `site` puts them, the ledger and the runs into the templates and writes the file. Refuses to hold a
number of its own: what stands there was printed by a notebook's cell, the ledger or a run's record, so that the same data
gives the same bytes.
"""
