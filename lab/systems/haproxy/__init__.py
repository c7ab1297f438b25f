"""HAProxy without a controller, and the code shared by all systems whose proxy is a HAProxy."""
