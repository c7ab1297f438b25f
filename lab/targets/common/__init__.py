"""Code that more than one target uses: processes, HTTP requests, cgroups, sampling and scratch folders."""
