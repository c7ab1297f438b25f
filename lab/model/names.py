"""Names that more than one package must agree on."""

from __future__ import annotations

DEFAULT_TARGET = "local"
"""Where `bench` measures unless told otherwise."""
WORTH = 0.02
"""The share from which on an effect is worth knowing, unless somebody says otherwise."""
INSIDE = "LAB_INSIDE"
"""Environment variable of the process that measures inside the lab's namespaces (`lab.targets.local.namespaces`)."""
