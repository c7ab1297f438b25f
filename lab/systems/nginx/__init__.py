"""The official nginx image; and what every system that is an nginx below shares."""
