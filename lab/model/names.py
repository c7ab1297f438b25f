"""Names and default values that several packages share, such as the default target and the default equivalence margin.

They have a module to themselves, so that an import of one of them brings nothing else of the model.
"""

from __future__ import annotations

DEFAULT_TARGET = "local"
"""The target on which `bench` measures by default."""
EQUIVALENCE_MARGIN = 0.02
"""The default equivalence margin, as a fraction: effects smaller than it do not matter."""
OUTPUT_WIDTH = 110
"""The largest width of a line of default output, in characters."""
INSIDE = "LAB_INSIDE"
"""The environment variable of a process in the lab's namespaces (`lab.targets.local.sandbox.namespaces`)."""
BRING_UP_S = {"apiserver": 4.3, "kind": 12.0, "local": 0.5, "remote": 12.0}
"""The approximate seconds that a variant, or a pair of them, takes to come up on each target.

Forecasts of a run's length use them where no run has measured that time yet.
"""
