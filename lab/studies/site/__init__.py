"""The report: one HTML file of the committed runs that needs no other file, no server and no network.

`notebooks` runs notebooks and converts the output of their cells to HTML. `rows` converts tuning steps and claims to positions on
an axis. `site` inserts these, the runs, and data about noise and load generators into the templates, and writes the file. Every
number comes from a notebook's cell, the ledger or a run's record, so the same data gives the same bytes.
"""
