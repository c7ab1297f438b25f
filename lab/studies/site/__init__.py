"""The report: one HTML file of the committed runs that needs no other file, no server and no network.

`notebooks` runs a notebook and turns its cells' output into HTML, and `rows` turns steps and claims into positions on an axis. `site` puts
them, the runs, and the data about noise and generators into the templates and writes the file. Refuses to contain a number that nothing else
printed: every number comes from a notebook's cell, the ledger or a run's record, so the same data gives the same bytes.
"""
