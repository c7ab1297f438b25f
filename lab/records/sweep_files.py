"""A sweep's file → the sweep, with the disturbances that there are. Errors name the file, the key and the nearest known one."""

from __future__ import annotations

from pathlib import Path

from lab import disturbances
from lab.base.errors import UsageError, did_you_mean
from lab.base.validation import read_toml, validated
from lab.model.disturbance import known
from lab.model.sweeps import FOLDER, PointSpec, Sweep, sweep_names


def load_sweep(name_or_path: str) -> tuple[str, Sweep]:
    """(name, sweep) of a sweep in `lab/sweeps/`, or of a file given by its path (ends in .toml)."""
    path = Path(name_or_path) if name_or_path.endswith(".toml") else FOLDER / f"{name_or_path}.toml"
    place = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    try:
        table = read_toml(path, place, "lab/sweeps/quick.toml")
    except FileNotFoundError:
        if path.parent != FOLDER:
            raise UsageError(
                "--sweep", f"there is no file {name_or_path}", "correct the path; `just list` shows the lab's own"
            ) from None
        remedy = did_you_mean(name_or_path, sweep_names())
        raise UsageError("--sweep", f"unknown sweep '{name_or_path}'", remedy) from None
    kinds = known(disturbances.DISTURBANCES)
    return path.stem, validated(Sweep, table, place, "lab/schema/sweep.json", PointSpec, context=kinds)
