"""The conversion of an access log to a load: its lines are read and counted, and a sweep repeats their mix of requests."""
