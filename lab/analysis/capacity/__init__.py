"""What requests cost the proxy in measured runs → how many proxies of which size."""
