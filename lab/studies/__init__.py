"""The studies: what was published, claim by claim, what the committed runs show about it, and the pages with both.

`study_files` reads the studies, `claims` has the claims' rules and verdicts, and `ledger` puts all verdicts together. `steps`, `boots`,
`carrying` and `matrix` summarise all committed runs. `exhibits` makes the notebooks' figures, and `site` makes the report.
Packages on lower floors (`lab/README.md`) do not import this package.
"""
