"""An ablation's folder: the runs of its steps."""

from __future__ import annotations

from pydantic import Field

from lab.base.validation import Record
from lab.model.run import NotMeasured


class Step(Record):
    """One knob: the variant that has it alone and what that is compared with, the one that has all up to it; `why` not."""

    knob: str
    title: str
    sweep: str
    metric: str
    root: str
    against: str
    alone: str | None = Field(description="the variant that has this knob alone; null = there is none")
    cumulative: str | None = Field(description="the variant that has all knobs up to it; null = there is none")
    why: tuple[str, ...] = ()


class AblationRun(Record):
    """One sweep's run. `run` is null until it begins; it never does where nothing of it is measurable here."""

    sweep: str
    variants: tuple[str, ...]
    run: str | None = None
    not_measurable: tuple[NotMeasured, ...] = ()
    skipped: bool = Field(default=False, description="nothing of it is measurable here")


class AblationRecord(Record):
    """`ablation.json`."""

    schema_version: int = 1
    id: str
    created_at: str
    command: tuple[str, ...]
    subject: str
    target: str
    blocks: int | None = Field(description="null = as many as each sweep says")
    seed: int
    steps: tuple[Step, ...]
    runs: tuple[AblationRun, ...]
    notes: tuple[str, ...] = ()
