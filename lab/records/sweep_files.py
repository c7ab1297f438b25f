"""The reader of sweep files: TOML files with lists of loads, some of them with disruptions.

Its errors name the file, the key and the nearest known key. It knows every kind of disruption (`lab.disturbances`). It is
separate from `lab.model.sweeps`, which must not depend on these kinds.
"""

from __future__ import annotations

from pathlib import Path

from lab import disturbances
from lab.base.errors import UsageError, did_you_mean
from lab.base.validation import read_toml, validate_table
from lab.model.disturbance import make_validation_context
from lab.model.sweeps import FOLDER, PointSpec, Sweep, SweepForm, find_file_of_form, form_table, sweep_names


def load_sweep(name_or_path: str) -> tuple[str, Sweep]:
    """Read a sweep (a list of loads) by its name in `lab/sweeps/`, or from a file whose path ends in .toml.

    A sweep may be a form in another sweep's file: `okd-quick` is the table `[forms.quick]` in `okd.toml`.

    Returns:
        The name of the sweep, and the sweep.

    Raises:
        UsageError: There is no such sweep or file, or the file is not a valid sweep.

    """
    path = Path(name_or_path) if name_or_path.endswith(".toml") else FOLDER / f"{name_or_path}.toml"
    try:
        return path.stem, _read_sweep(path)
    except FileNotFoundError:
        if (file_and_form := find_file_of_form(path)) is not None:
            return path.stem, _read_sweep(*file_and_form)
        if path.parent != FOLDER:
            raise UsageError(
                "--sweep", f"there is no file {name_or_path}", "correct the path; `just list` shows the lab's own"
            ) from None
        raise UsageError(
            "--sweep", f"unknown sweep '{name_or_path}'", did_you_mean(name_or_path, sweep_names())
        ) from None


def _read_sweep(path: Path, form: str | None = None) -> Sweep:
    """Read a sweep's file, and return the sweep or one of its forms (variations in the same file).

    Args:
        path: The file.
        form: The name of the form; None = the sweep itself.

    Raises:
        FileNotFoundError: There is no such file.
        UsageError: The file is not a valid sweep.

    """
    place = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    table, context = read_toml(path, place, "lab/sweeps/quick.toml"), make_validation_context(disturbances.DISTURBANCES)
    sweep = validate_table(Sweep, table, place, "lab/schema/sweep.json", PointSpec, SweepForm, context=context)
    if form is None:
        return sweep
    table_of_form = form_table(table, form)
    return validate_table(
        Sweep, table_of_form, f"{place}: forms.{form}", "lab/schema/sweep.json", PointSpec, context=context
    )
