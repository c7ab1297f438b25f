"""The official nginx image, and the code that all systems share whose proxy is an nginx."""
