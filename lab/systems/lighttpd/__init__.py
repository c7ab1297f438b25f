"""lighttpd without a controller, configured from Gateway API's objects."""
