"""Labels that manifests carry for the lab."""

from __future__ import annotations

ROLE_LABEL = "lab/role"
"""On every workload: what it is to the lab, a `Role`."""
