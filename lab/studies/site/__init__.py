"""The report: one HTML file of the committed runs that needs nothing else, neither a server nor a network.

`notebooks` runs a notebook and turns what its cells showed into HTML, `rows` the steps and claims into places on an axis; `site` puts
them, the runs and what is known of noise and generators into the templates and writes the file. Refuses to hold a number of its own: what stands
there was printed by a notebook's cell, the ledger or a run's record, so that the same data gives the same bytes.
"""
