"""The committed trials in data/trials: which variants and sweeps work on a target, tried without measuring.

There is a file per target. `just sabotage --intact --record` writes it; with names of variants it tries only these again, and
the sweeps. A trial shows whether a variant started with every setting in effect, and whether a target accepts the load points of
a sweep, or else why not. It shows nothing about speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import Field

from lab.base.files import json_bytes, read_record, reference_folder, replace_file, writing
from lab.base.validation import Record
from lab.model.variants.naming import stored_name

FOLDER = reference_folder().parent / "trials"
TOP = "data/trials"
ON_PREFIX = "on "
"""The prefix in `TrialResult.detail` of the variant with which a sweep was accepted."""


class TrialResult(Record):
    """The result of trying one variant or sweep (list of loads) on a target (place to run systems), without measuring.

    `outcome` is "holds", "accepted", "not measurable" or "FAILED". `detail` is the number of passed checks, the variant
    with which a sweep was accepted (`on VARIANT`), or what went wrong.
    """

    outcome: str = Field(
        description="holds (came up and was read back), accepted (a sweep's points), not measurable, FAILED"
    )
    detail: str = ""

    def on_present_name(self) -> TrialResult:
        """Return a copy of the result in which a variant that was renamed since has its present name.

        Only the result of an accepted sweep names a variant: its `detail` is `on VARIANT`. Other results are returned
        unchanged.
        """
        if not self.detail.startswith(ON_PREFIX):
            return self
        return self.model_copy(update={"detail": f"{ON_PREFIX}{stored_name(self.detail.removeprefix(ON_PREFIX))}"})


class TargetTrial(Record):
    """The content of data/trials/TARGET.json: which variants and sweeps (of loads) one target (place to run) supports."""

    target: str
    tried_at: str
    git_commit: str | None
    facts: dict[str, str]
    variants: dict[str, TrialResult]
    sweeps: dict[str, TrialResult] = Field(description="of the studies")
    again: dict[str, str | None] = Field(
        default_factory=dict, description="variant → the commit at which it was tried again, later than the rest"
    )

    @property
    def place(self) -> str:
        """The path of the file with this trial of a target, relative to the top of the checkout."""
        return f"{TOP}/{self.target}.json"


@cache
def read_trials() -> Mapping[str, TargetTrial]:
    """Return the committed trials, each by the name of its target (place to run systems), such as "local".

    A trial finds out which variants and sweeps (lists of loads) work on a target. Variants have their present names.

    Raises:
        UsageError: A file is damaged.

    """
    trials: dict[str, TargetTrial] = {}
    for path in sorted(FOLDER.glob("*.json")):
        trial = read_record(path, TargetTrial, "restore it from a copy, or write it anew")
        renamed = {
            "sweeps": {name: tried.on_present_name() for name, tried in trial.sweeps.items()},
            "variants": {stored_name(name): tried for name, tried in trial.variants.items()},
            "again": {stored_name(name): commit for name, commit in trial.again.items()},
        }
        trials[trial.target] = trial.model_copy(update=renamed)
    return trials


def write_trial(trial: TargetTrial) -> Path:
    """Write the trial of a target (which variants and sweeps it supports) into its file in data/trials; return the path."""
    path = FOLDER / f"{trial.target}.json"
    with writing(path):
        FOLDER.mkdir(exist_ok=True)
        replace_file(path, json_bytes(trial))
    return path
