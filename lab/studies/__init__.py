"""Studies: what was published, claim by claim, beside what the committed runs say of it, and the pages that show both.

`study_files` has the studies, `claims` their rules and verdicts, `ledger` all verdicts together. `steps`, `boots`, `carrying` and `matrix`
are of all committed runs; `exhibits` are the notebooks' figures, `site` is the report. Nothing below imports it.
"""
