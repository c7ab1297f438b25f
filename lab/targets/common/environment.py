"""The environment of what is started in a measurement: the lab composes it, and nothing of the user's gets in but where programs are.

A proxy that a company prescribes (`http_proxy`), what a runtime is told (`GOMAXPROCS`, `LD_PRELOAD`), options of a generator (`K6_…`),
a locale: each of them would be measured, and told by nobody. Containers have their own, as their manifests say.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def composed(home: Path | str = "/nonexistent") -> Mapping[str, str]:
    """Where programs are, a home without anybody's settings (`home`), where scratch files may lie, and a neutral locale and time zone."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(home), "TMPDIR": os.environ.get("TMPDIR") or "/tmp", "LC_ALL": "C", "TZ": "UTC0"}
