"""The way from an access log to a load: its lines are read, counted as shapes, and put into the sweep `traffic`."""
