"""The gate, a pass/fail check for CI: a comparison and bounds on what may get worse → regression, passed, or inconclusive."""
