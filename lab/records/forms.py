"""What both forms of a run's folder have in common: a folder per sample (`folders`), or few files (`packed`)."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from lab.base.errors import UsageError
from lab.model.run import RoundTrip
from lab.records.tables import FrameError

RUN, KNEE = "run.json", "knee.json"
"""The same in both forms."""
ROUNDTRIP = "roundtrip.json"
"""Of a packed run a line of its bring-ups; earlier labs left the file."""
USAGE, EVENTS, HISTOGRAMS = "usage.parquet", "events.parquet", "hist.parquet"
"""Of a sample, beside its sample.json; in a packed run of all samples, the last one a cache."""
READBACK, DEPLOYED = "readback", "deployed"
"""What is kept of a bring-up."""


def unreadable(path: Path, error: OSError, remedy: str) -> UsageError:
    """A file or folder that the system does not let us read."""
    return UsageError(str(error.filename or path), f"cannot be read: {error.strerror}", remedy)


def roundtrip_of(folder: Path) -> RoundTrip | None:
    """None as long as it was not tried. OSError; FrameError when it is damaged."""
    try:
        return RoundTrip.model_validate_json((folder / ROUNDTRIP).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise FrameError(error.errors()[0]["msg"]) from None


def has(folder: Path, name: str) -> bool:
    """Whether a folder has a file of that name, as far as we may see."""
    try:
        return (folder / name).is_file()
    except OSError:
        return False
