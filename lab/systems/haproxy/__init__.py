"""HAProxy by itself, configured from Gateway API's objects; and what every system that is a HAProxy below shares."""
