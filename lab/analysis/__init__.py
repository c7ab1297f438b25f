"""Numbers of stored runs → what may be said of them. Measures nothing and prints nothing."""
