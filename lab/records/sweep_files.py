"""A sweep's file → the sweep, with the disturbances that there are. Errors name the file, the key and the nearest known one.

Apart from `lab.model.sweeps`, which refuses to know the disturbances that there are.
"""

from __future__ import annotations

from pathlib import Path

from lab import disturbances
from lab.base.errors import UsageError, did_you_mean
from lab.base.validation import read_toml, validated
from lab.model.disturbance import known
from lab.model.sweeps import FOLDER, Form, PointSpec, Sweep, file_of_form, form_table, sweep_names


def load_sweep(name_or_path: str) -> tuple[str, Sweep]:
    """Return (name, sweep) of a sweep in `lab/sweeps/`, or of a file given by its path (ends in .toml).

    One that has no file of its own may be a form in another's: `okd-quick` is `[forms.quick]` in `okd.toml`.
    """
    path = Path(name_or_path) if name_or_path.endswith(".toml") else FOLDER / f"{name_or_path}.toml"
    try:
        return path.stem, _read(path)
    except FileNotFoundError:
        if (held := file_of_form(path)) is not None:
            return path.stem, _read(*held)
        if path.parent != FOLDER:
            raise UsageError(
                "--sweep", f"there is no file {name_or_path}", "correct the path; `just list` shows the lab's own"
            ) from None
        remedy = did_you_mean(name_or_path, sweep_names())
        raise UsageError("--sweep", f"unknown sweep '{name_or_path}'", remedy) from None


def _read(path: Path, form: str | None = None) -> Sweep:
    """Return the sweep of a file, or a form of it. FileNotFoundError where it is not there, UsageError for what is no sweep."""
    place = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    table, context = read_toml(path, place, "lab/sweeps/quick.toml"), known(disturbances.DISTURBANCES)
    sweep = validated(Sweep, table, place, "lab/schema/sweep.json", PointSpec, Form, context=context)
    if form is None:
        return sweep
    made = form_table(table, form)
    return validated(Sweep, made, f"{place}: forms.{form}", "lab/schema/sweep.json", PointSpec, context=context)
