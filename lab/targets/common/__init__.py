"""What more than one target uses: processes, certificates, cgroups, sampling."""
