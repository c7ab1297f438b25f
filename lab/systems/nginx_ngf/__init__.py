"""NGINX Gateway Fabric."""
