"""Generator truth: every generator against a server with known behaviour, and what it reports beside what was.

`scenarios` are the behaviours and the loads, `truth` is the server's own record, `measuring` makes one measurement, `records`
and `folder` keep them, `rows` and `tables` say what they mean.
"""
