"""From what was asked for (variants, sweep, target) to a run that can be measured: everything is checked before anything starts.

    load → measurable → probed → design_run

Each step is handed what those before it found, and asks the outside by the target's protocol only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from lab.base.errors import UsageError
from lab.base.files import check_writable
from lab.experiments.bench.design import SAMPLE_BYTES, design_run, with_design
from lab.experiments.bench.measurable import choose, generator_record, measurable, refuse_loads
from lab.experiments.bench.probing import Trials, probed
from lab.experiments.bench.request import Request, fixtures_of, load
from lab.generators.k6 import Out
from lab.measure.loop import stale_blocks
from lab.measure.measurement import ChosenGenerator
from lab.model import facts
from lab.model.design import Design
from lab.model.plan import Plan
from lab.model.run import RunRecord
from lab.model.sweeps import Point
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant
from lab.records.store import RunStore
from lab.targets.base import Target
from lab.targets.survey import checked, facts_of

CLUSTER = "cluster"
"""The fact by which a cluster is known again."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run ready to be measured: run.json as it begins, with its design."""

    record: RunRecord
    plan: Plan
    variants: Mapping[str, Variant]
    chosen: Mapping[str, ChosenGenerator]
    to_probe: tuple[Point, ...] = ()
    """Points of which a probe, before the first sample, has still to find out whether the target carries them for two sides at once."""

    @property
    def design(self) -> Design:
        return self.record.designed


def prepare(request: Request, target: Target, command: Sequence[str], trials: Trials | None = None) -> Prepared:
    """Load and check everything; UsageError on the first fault. Starts nothing, writes nothing, unless `trials` does.

    `trials`: how it is found out what the target carries for two sides at once; None: it is not, and `Prepared.to_probe` names the points.
    What cannot be shown here is left out and recorded; NothingMeasurableError if that leaves nothing.
    """
    loaded = load(request)
    shown = measurable(loaded, target, command)
    to_probe = shown.to_probe
    if to_probe and trials is not None:
        base = next(iter(loaded.baselines.values()))
        shown, to_probe = probed(shown, target, base, request.k6_out, trials), ()
    record, chosen = design_run(loaded, shown, target)
    return Prepared(record, record.plan(), shown.variants, chosen, to_probe)


def resume(
    name: str, target: Target, of_trial: Callable[[Point, Target], ChosenGenerator] | None = None
) -> tuple[Prepared, RunStore]:
    """An interrupted run of this target, ready to go on: the same cluster, manifests and generators, or UsageError.

    Nothing is pooled of two. `of_trial` chooses the generator of a search for the knee, which the run must be then; else it must be none.
    """
    run = RunStore.open(name)
    run.refuse_packed()
    record = run.record
    if (record.knee is None) != (of_trial is None):
        what, verb = ("a run", "bench") if of_trial else ("a search for a knee", "knee")
        raise UsageError(record.id, f"is {what}", f"go on with `just {verb} --resume {record.id}`")
    manifests = run.folder.parent / record.manifests if record.manifests else MANIFESTS
    fixtures = fixtures_of(record.points)
    names = dict.fromkeys(arm.variant for arm in record.arms)
    variants = {each: load_variant(each, manifests, fixtures) for each in names}
    target.check()
    began, now_on = record.facts.get(CLUSTER), target.facts().get(CLUSTER)
    if began != now_on:
        fault = f"it began on another cluster ({began}; this one is {now_on})"
        raise UsageError(record.id, fault, "name the context it began with, or start a new run")
    chosen = {
        point.name: of_trial(point, target)
        if of_trial
        else choose(point, target, cast("Out | None", record.k6_out(point.name)))
        for point in record.points
    }
    for variant in variants.values():
        if variant.manifests_sha256 != record.variants[variant.name].manifests_sha256:
            fault = f"the manifests of '{variant.name}' have changed since this run began"
            raise UsageError(record.id, fault, "start a new run, or restore the manifests")
    for point, used in record.generators.items():
        now_used = generator_record(chosen[point])
        if now_used != used:
            fault = f"it measured {point} with {used['name']} {used['version']}, now there is {now_used['name']} {now_used['version']}"
            raise UsageError(record.id, fault, "start a new run, or restore the generator")
    endpoints = {name: checked(variant, target, record.points) for name, variant in variants.items()}
    if of_trial is None:
        refuse_loads(record.points, chosen, endpoints)
    check_writable(run.folder, SAMPLE_BYTES)
    return Prepared(with_design(record, target.bring_up_s), record.plan(), variants, chosen), run


def go_on(run: RunStore, target: Target) -> None:
    """Note in a run's folder, locked, where it goes on; what was interrupted for too long is marked to begin anew."""
    found, commit = facts_of(target), facts.git_commit()
    run.clear_partial()
    run.mark_interrupted(stale_blocks(run, found))
    lab = {"git_commit": commit} if commit and commit != run.record.git_commit else {}
    run.note_resumed(found | lab)
