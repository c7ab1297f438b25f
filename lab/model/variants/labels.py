"""Labels that manifests carry for the lab. A module of its own, as targets and systems look for them without a variant."""

from __future__ import annotations

ROLE_LABEL = "lab/role"
"""On every workload: what it is to the lab, a `Role`."""
