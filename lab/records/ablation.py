"""The record of an ablation, `ablation.json`: its steps, and the runs that measure them."""

from __future__ import annotations

from pydantic import Field

from lab.base.validation import Record
from lab.model.run import NotMeasured


class Step(Record):
    """One knob of an ablation: the variant with this knob alone, and the variant with every knob up to it.

    `why` has the reasons where the knob lacks one of these variants or is measured one at a time only.
    """

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
    """The run of one sweep of an ablation.

    `run` is null until it begins. It never begins where nothing in the sweep is measurable here.
    """

    sweep: str
    variants: tuple[str, ...]
    run: str | None = None
    not_measurable: tuple[NotMeasured, ...] = ()
    skipped: bool = Field(default=False, description="nothing of it is measurable here")


class AblationRecord(Record):
    """The content of `ablation.json`: an ablation's subject, its steps and its runs."""

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
