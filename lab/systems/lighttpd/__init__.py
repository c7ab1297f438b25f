"""lighttpd by itself, configured from Gateway API's objects."""
