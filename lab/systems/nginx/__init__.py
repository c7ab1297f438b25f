"""The official nginx image, and the code shared by all systems whose proxy is an nginx."""
