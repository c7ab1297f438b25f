"""NGINX Gateway Fabric, whose data plane is an nginx."""
