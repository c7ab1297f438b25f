"""The capacity answer: how many proxies of which size, from what a request costs the proxy in measured runs."""
