"""The requests of a verification, and the comparison of what two systems make of them. Nothing here does network I/O."""
