"""HAProxy without a controller, and the code that all systems share whose proxy is a HAProxy."""
