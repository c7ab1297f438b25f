"""Labels that manifests have for the lab.

They have a module to themselves, because targets and systems look for them without a variant.
"""

from __future__ import annotations

ROLE_LABEL = "lab/role"
"""The label of every workload whose value is its `Role` in the lab."""
