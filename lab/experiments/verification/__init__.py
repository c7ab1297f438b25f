"""The verification of a migration: ingress-nginx and its successors get the same requests, and their answers are compared."""
