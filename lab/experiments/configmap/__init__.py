"""The conversion of a user's ingress-nginx ConfigMap to settings that can be measured: the whole file, and single keys."""
