"""Programs that only some targets want: `scripts/bring` has them brought when something first needs them, outside the lab's namespaces."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lab.base.errors import UsageError

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "bring"
CACHE = (ROOT / ".cache").resolve()
REMEDY = "`scripts/shell scripts/bring {}` says why; nix has it, and one of your own on PATH will do"


def bring(tool: str) -> None:
    """It is on PATH afterwards: UsageError where it is not and cannot be brought. What is brought is told on stderr, with its time."""
    found = shutil.which(tool)
    if found is not None and not Path(found).parent.resolve().is_relative_to(CACHE):
        return  # nix's, or the user's own
    brought = subprocess.run([SCRIPT, tool], check=False).returncode == 0
    if shutil.which(tool) is None:
        fault = (
            "was brought and is not on PATH: the lab was not started by scripts/shell" if brought else "is not on PATH"
        )
        raise UsageError(tool, fault, REMEDY.format(tool))
