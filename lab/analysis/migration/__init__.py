"""ingress-nginx's settings → what a successor has in their place, and the traps in between. Pure but for reading the tables."""
