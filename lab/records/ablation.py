"""The content of `ablation.json`, the record of an ablation: the attribution of an effect to single settings.

A step is one setting. The runs measure the variants of all steps.
"""

from __future__ import annotations

from pydantic import Field

from lab.base.validation import Record
from lab.model.run import NotMeasured


class Step(Record):
    """One knob (single setting) of an ablation, with the two variants that measure it.

    An ablation attributes an effect to single settings. `alone` is the variant with only this knob. `cumulative` is the
    variant with all knobs up to this one, without those that are measured only one at a time. If one of these variants
    does not exist, `why` has the reasons; it is empty if the knob is only measured one at a time.
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
    """One run of an ablation (the effects of single settings): all variants that are measured under one sweep of loads.

    `run` is the name of the run; null until it begins. It never begins if none of the variants can be measured here.
    """

    sweep: str
    variants: tuple[str, ...]
    run: str | None = None
    not_measurable: tuple[NotMeasured, ...] = ()
    skipped: bool = Field(default=False, description="nothing of it is measurable here")


class AblationRecord(Record):
    """The content of `ablation.json`: the subject of an ablation, its knobs (single settings) and its runs."""

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
