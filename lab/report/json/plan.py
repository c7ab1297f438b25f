"""What `--plan --json` prints of a verb that measures: every run that it would make, what each can resolve, and how long all takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import ConfigDict, Field

from lab.model.design import PlannedFor, Promise
from lab.model.plan import Arm
from lab.model.run import AtKnee, KneeSearch, NotMeasured, RunRecord
from lab.model.sweeps import Point
from lab.records.ablation import AblationRecord, Step
from lab.report.json.printed import Count, Printed

ROLE = "cpus_"
"""How facts begin that say which CPUs a role has."""


class GeneratorJson(Printed):
    """What makes a load here."""

    name: str
    version: str | None
    stand_in_for: str | None = Field(description="the generator that the sweep asks for; null = this one")


class LoadJson(Printed):
    """One load, and who makes it."""

    point: Point
    generator: GeneratorJson
    why_alone: str = Field(description="why no pair can bear it; empty = one can")


class RunPlanJson(Printed):
    """One run, as it would be measured."""

    run: str = Field(description="its id; another one where it is asked for again")
    target: str
    sweep: str
    cpus: dict[str, str] = Field(description="role → its CPUs, where roles are pinned")
    arms: tuple[Arm, ...]
    loads: tuple[LoadJson, ...]
    unpaired: dict[str, str] = Field(description="variant → why no other can be up beside it")
    not_measurable: tuple[NotMeasured, ...]
    at_knee: AtKnee | None
    knee: KneeSearch | None = Field(description="of a search for the knee, whose samples are not known beforehand")
    blocks: Count
    seed: int
    pairs: Count
    alone: Count = Field(description="samples of arms alone")
    done: Count = Field(description="of pairs and samples, those that are measured already")
    planned_for: PlannedFor | None
    worth: float = Field(description="the share from which on an effect is worth knowing")
    promised: tuple[Promise, ...] = Field(description="the smallest effects that are found with 90 % probability")
    promised_by: str = Field(description="what that is known from, or why nothing is promised")
    fresh_bring_ups: Count = Field(
        description="within blocks, after loads that are known to leave too many local ports waiting; duration_s has their time"
    )
    duration_s: float = Field(description="of what is not done yet")


class AblationPlanJson(Printed):
    """Whose knobs are measured one by one."""

    id: str
    subject: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...]


class BesideJson(Printed):
    """A question of the study that another command answers."""

    question: str
    command: str


class PlanJson(Printed):
    """Nothing of it has been measured, and nothing is kept."""

    model_config = ConfigDict(title="What `--plan --json` prints; seconds, bytes, requests per second, shares")

    schema_version: Literal[1]
    ablation: AblationPlanJson | None = Field(
        description="of `ablate` and `bench --configmap`; null = of no other verb"
    )
    runs: tuple[RunPlanJson, ...]
    left_out: tuple[NotMeasured, ...] = Field(description="of runs that have nothing that can be measured here")
    beside: tuple[BesideJson, ...] = Field(description="of `study`")
    duration_s: float = Field(description="of all runs")


def run_plan(record: RunRecord, done: int = 0) -> RunPlanJson:
    """`done`: how many of its pairs and samples need no further measurement."""
    slots, design = len(record.slots), record.designed
    return RunPlanJson(
        run=record.id,
        target=record.target,
        sweep=record.sweep,
        cpus={key.removeprefix(ROLE): cpus for key, cpus in record.facts.items() if key.startswith(ROLE)},
        arms=record.arms,
        loads=tuple(_load(point, record) for point in record.points),
        unpaired={variant.name: variant.unpaired for variant in record.variants.values() if variant.unpaired},
        not_measurable=record.not_measurable,
        at_knee=record.at_knee,
        knee=record.knee,
        blocks=record.blocks,
        seed=record.seed,
        pairs=len(record.pairs),
        alone=slots - len(record.pairs),
        done=done,
        planned_for=design.planned_for,
        worth=record.worth,
        promised=design.promised,
        promised_by=design.promised_by,
        fresh_bring_ups=design.fresh.count,
        duration_s=design.duration_s * (1 - done / slots if slots else 1),
    )


def _load(point: Point, record: RunRecord) -> LoadJson:
    used = record.generators[point.name]
    return LoadJson(
        point=point,
        generator=GeneratorJson(name=used["name"] or "", version=used["version"], stand_in_for=used["stand_in_for"]),
        why_alone=point.why_alone if record.pairs else "",
    )


def printed(
    runs: Sequence[RunPlanJson],
    ablation: AblationRecord | None = None,
    left_out: Sequence[NotMeasured] = (),
    beside: Mapping[str, str] | None = None,
) -> PlanJson:
    """`beside`: question → command."""
    return PlanJson(
        schema_version=1,
        ablation=None
        if ablation is None
        else AblationPlanJson(id=ablation.id, subject=ablation.subject, steps=ablation.steps, notes=ablation.notes),
        runs=tuple(runs),
        left_out=tuple(left_out),
        beside=tuple(BesideJson(question=each, command=command) for each, command in (beside or {}).items()),
        duration_s=sum(run.duration_s for run in runs),
    )
