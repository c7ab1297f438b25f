"""What came of every variant and every study's sweep on a target, tried without measuring: data/trials, a file a target.

`just sabotage --intact --record` writes one, and with variants tries these again in it. It says that a variant came up with
every knob read back, that a target takes a sweep's points, or why not there; nothing of how fast anything was.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import Field

from lab.base.files import json_bytes, read_record, reference_folder, replace, writing
from lab.base.validation import Record
from lab.model.variants.naming import stored_name

FOLDER = reference_folder().parent / "trials"
TOP = "data/trials"
ON = "on "
"""Before the variant with which a sweep was accepted."""


class Tried(Record):
    """One of them. `detail`: how many checks held, or what was the matter."""

    outcome: str = Field(
        description="holds (came up and was read back), accepted (a sweep's points), not measurable, FAILED"
    )
    detail: str = ""

    def on_present_name(self) -> Tried:
        """With the name that the variant has now with which it was accepted."""
        if not self.detail.startswith(ON):
            return self
        return self.model_copy(update={"detail": f"{ON}{stored_name(self.detail.removeprefix(ON))}"})


class Trial(Record):
    """data/trials/TARGET.json."""

    target: str
    tried_at: str
    git_commit: str | None
    facts: dict[str, str]
    variants: dict[str, Tried]
    sweeps: dict[str, Tried] = Field(description="of the studies")
    again: dict[str, str | None] = Field(
        default_factory=dict, description="variant → the commit at which it was tried again, later than the rest"
    )

    @property
    def place(self) -> str:
        """From the checkout's top."""
        return f"{TOP}/{self.target}.json"


@cache
def committed() -> Mapping[str, Trial]:
    """Target → its trial, each variant by its present name. UsageError for a file that is damaged."""
    found: dict[str, Trial] = {}
    for path in sorted(FOLDER.glob("*.json")):
        trial = read_record(path, Trial, "restore it from a copy, or write it anew")
        renamed = {
            "sweeps": {name: tried.on_present_name() for name, tried in trial.sweeps.items()},
            "variants": {stored_name(name): tried for name, tried in trial.variants.items()},
            "again": {stored_name(name): commit for name, commit in trial.again.items()},
        }
        found[trial.target] = trial.model_copy(update=renamed)
    return found


def write(trial: Trial) -> Path:
    """Where it is now."""
    path = FOLDER / f"{trial.target}.json"
    with writing(path):
        FOLDER.mkdir(exist_ok=True)
        replace(path, json_bytes(trial))
    return path
