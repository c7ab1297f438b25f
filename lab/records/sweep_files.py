"""A sweep's file → the sweep, with the disturbances that there are. Errors name the file, the key and the nearest known one."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import ValidationError

from lab import disturbances
from lab.base.errors import UsageError, did_you_mean
from lab.base.validation import faults
from lab.model.disturbance import known
from lab.model.sweeps import FOLDER, PointSpec, Sweep, sweep_names


def load_sweep(name_or_path: str) -> tuple[str, Sweep]:
    """(name, sweep) of a sweep in `lab/sweeps/`, or of a file given by its path (ends in .toml)."""
    path = Path(name_or_path) if name_or_path.endswith(".toml") else FOLDER / f"{name_or_path}.toml"
    place = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    try:
        return path.stem, Sweep.model_validate(
            tomllib.loads(path.read_text("utf-8")), context=known(disturbances.kinds())
        )
    except FileNotFoundError:
        raise UsageError(
            "--sweep",
            f"unknown sweep '{name_or_path}'",
            did_you_mean(name_or_path, sweep_names()),
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(place, f"not TOML: {error}", "see lab/sweeps/quick.toml for the form") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(place, f"cannot be read: {error}", "make it a readable text file") from None
    except ValidationError as error:
        raise UsageError(
            place,
            "; ".join(faults(error, PointSpec, Sweep)),
            "lab/schema/sweep.json lists every key",
        ) from None
