"""What both forms of a run's folder have in common: a folder per sample (`folders`), or few files (`packed`)."""

from __future__ import annotations

from pathlib import Path

from lab.base.errors import UsageError

RUN, ROUNDTRIP, KNEE = "run.json", "roundtrip.json", "knee.json"
"""The same in both forms."""
USAGE, EVENTS, HISTOGRAMS = "usage.parquet", "events.parquet", "hist.parquet"
"""Of a sample, beside its sample.json; in a packed run of all samples, the last one a cache."""
READBACK, DEPLOYED = "readback", "deployed"
"""What is kept of a bring-up."""


def unreadable(path: Path, error: OSError, remedy: str) -> UsageError:
    """A file or folder that the system does not let us read."""
    return UsageError(str(error.filename or path), f"cannot be read: {error.strerror}", remedy)


def has(folder: Path, name: str) -> bool:
    """Whether a folder has a file of that name, as far as we may see."""
    try:
        return (folder / name).is_file()
    except OSError:
        return False
