"""Names that more than one package must agree on. A module of its own: whoever wants a name wants nothing else of the model."""

from __future__ import annotations

DEFAULT_TARGET = "local"
"""Where `bench` measures unless told otherwise."""
WORTH = 0.02
"""The share from which on an effect is worth knowing, unless somebody says otherwise."""
INSIDE = "LAB_INSIDE"
"""Environment variable of the process that measures inside the lab's namespaces (`lab.targets.local.sandbox.namespaces`)."""
BRING_UP_S = {"apiserver": 4.3, "kind": 12.0, "local": 0.5, "remote": 12.0}
"""Target → how long a variant, or a pair of them, takes to come up there, about: for forecasts, until a run has shown it."""
