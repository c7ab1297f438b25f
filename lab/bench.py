"""From what was asked for (variants, sweep, target) to a run that can be measured: everything is checked before anything starts."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from lab import facts, generators, stats, store
from lab.errors import UsageError
from lab.measurement import Chosen, load_of
from lab.plan import Plan, arms_for, plan
from lab.run import Bench, Observer, counts, stale_blocks
from lab.samples import Sample
from lab.store import RunRecord, RunStore, VariantRecord
from lab.sweeps import Point, load_sweep
from lab.targets.base import Endpoint, Target
from lab.variants import Variant, config_snippet, load_variant, reference_name

BRING_UP_S = 2.0  # first guess; an earlier run on this machine replaces it
SAMPLE_OVERHEAD_S = 0.5  # canaries, generator start, storing
SAMPLE_BYTES = 2_000_000  # more than a sample's folder takes
PRIOR_CV = 0.055
"""Coefficient of variation of ten 5 s wrk samples on a shared 2-core machine (design.md §6): the guess before any A/A run here."""
PLACEHOLDER = Endpoint("http://192.0.2.1:80", "bench.lab.test")


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for."""

    variants: tuple[str, ...]
    sweep: str
    blocks: int | None
    seed: int | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run ready to be measured, and what is known about it beforehand."""

    record: RunRecord
    plan: Plan
    variants: Mapping[str, Variant]
    chosen: Mapping[str, Chosen]
    duration_s: float
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class Resolution:
    """The smallest effect (as a ratio minus one) that the run can be expected to claim, and where the guess comes from."""

    effect: float | None
    source: str


def prepare(request: Request, target: Target, command: Sequence[str]) -> Prepared:
    """Load and check everything; UsageError on the first fault. Starts nothing, writes nothing."""
    sweep_name, sweep = load_sweep(request.sweep)
    points = sweep.expanded()
    wanted = {name: load_variant(name) for name in dict.fromkeys(request.variants)}
    arms = arms_for([(name, variant.baseline) for name, variant in wanted.items()], reference_name())
    variants = {arm.variant: wanted.get(arm.variant) or load_variant(arm.variant) for arm in arms}
    target.check()
    for variant in variants.values():
        target.check_variant(variant, points)
    chosen = {point.name: choose(point) for point in points}
    blocks = request.blocks or sweep.blocks
    seed = request.seed if request.seed is not None else secrets.randbelow(2**31)
    planned = plan(arms, points, blocks, seed)
    store.check_writable(store.runs_folder(), len(planned.slots) * SAMPLE_BYTES)
    record = _record(request, target, command, sweep_name, planned, variants, chosen)
    past = _past_samples(record)
    return Prepared(
        record,
        planned,
        variants,
        chosen,
        _duration_s(planned, past),
        _resolution(planned, past),
    )


def resume(name: str, target_named: str | None, targets: Mapping[str, Target]) -> tuple[Prepared, RunStore]:
    """An interrupted run, ready to go on: the same manifests, generators and target, or UsageError."""
    run = RunStore.open(name)
    record = run.record
    if target_named not in (None, record.target):
        raise UsageError(
            "--target",
            f"run {record.id} is of target '{record.target}'",
            "leave --target out",
        )
    target = targets[record.target]
    variants = {arm.variant: load_variant(arm.variant) for arm in record.arms}
    target.check()
    chosen = {point.name: choose(point) for point in record.points}
    for variant in variants.values():
        target.check_variant(variant, record.points)
        if _digest(variant) != record.variants[variant.name].manifests_sha256:
            fault = f"the manifests of '{variant.name}' have changed since this run began"
            raise UsageError(record.id, fault, "start a new run, or restore the manifests")
    for point, used in record.generators.items():
        now_used = _generator_record(chosen[point])
        if now_used != used:
            fault = f"it measured {point} with {used['name']} {used['version']}, now there is {now_used['name']} {now_used['version']}"
            raise UsageError(record.id, fault, "start a new run, or restore the generator")
    store.check_writable(run.folder, SAMPLE_BYTES)
    planned, past = record.plan(), _past_samples(record)
    return Prepared(
        record,
        planned,
        variants,
        chosen,
        _duration_s(planned, past),
        _resolution(planned, past),
    ), run


def begin(prepared: Prepared, target: Target, observer: Observer) -> Bench:
    """The new run's folder, and the loop over it."""
    run = RunStore.create(
        prepared.record,
        {name: variant.manifests for name, variant in prepared.variants.items()},
    )
    return Bench(target, prepared.variants, prepared.chosen, run, observer)


def go_on(prepared: Prepared, run: RunStore, target: Target, observer: Observer) -> Bench:
    """The loop over an existing run. Blocks that were interrupted for too long are marked and begin anew."""
    now = _facts(target)
    run.clear_partial()
    run.mark_interrupted(stale_blocks(run, now))
    run.note_resumed(now)
    return Bench(target, prepared.variants, prepared.chosen, run, observer)


def choose(point: Point) -> Chosen:
    """The generator for a point, or the one that stands in for it."""
    used, why = generators.choose(point.generator, load_of(point, PLACEHOLDER))
    installed = generators.find(used)
    assert installed is not None  # choose() has found it
    return Chosen(used, installed.path, installed.version, point.generator if why else None)


def _record(
    request: Request,
    target: Target,
    command: Sequence[str],
    sweep: str,
    planned: Plan,
    variants: Mapping[str, Variant],
    chosen: Mapping[str, Chosen],
) -> RunRecord:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    label = "-".join(request.variants).replace("+", "-")[:40]
    return RunRecord(
        id=f"{stamp}-{label}-{sweep}-{random.SystemRandom().randrange(16**4):04x}",
        created_at=store.now(),
        command=tuple(command),
        target=target.name,
        sweep=sweep,
        seed=planned.seed,
        blocks=planned.blocks,
        arms=planned.arms,
        points=planned.points,
        slots=tuple((slot.block, slot.arm.name, slot.point.name) for slot in planned.slots),
        variants={name: _variant_record(variant) for name, variant in variants.items()},
        generators={point: _generator_record(used) for point, used in chosen.items()},
        facts=_facts(target),
        git_commit=facts.git_commit(),
    )


def _facts(target: Target) -> dict[str, str]:
    return facts.machine() | dict(target.facts())


def _variant_record(variant: Variant) -> VariantRecord:
    return VariantRecord(
        name=variant.name,
        title=variant.title,
        baseline=variant.baseline,
        knobs=tuple(knob.name for knob in variant.knobs),
        own_knobs=variant.own_knobs,
        primary_metric=variant.primary_metric,
        hypothesis_sweep=variant.sweep,
        manifests_sha256=_digest(variant),
        snippet=config_snippet(variant),
    )


def _digest(variant: Variant) -> str:
    return hashlib.sha256(json.dumps(variant.manifests, sort_keys=True).encode()).hexdigest()


def _generator_record(used: Chosen) -> dict[str, str | None]:
    return {
        "name": used.generator.name,
        "version": used.version,
        "stand_in_for": used.stand_in_for,
    }


def _past_samples(record: RunRecord) -> list[Sample]:
    """Samples of this machine's latest run with a comparable plan: same target, facts, points and generators."""
    for name in reversed(store.run_names()):
        try:
            run = RunStore.open(name)
            comparable = (
                run.record.target,
                run.record.points,
                run.record.generators,
            ) == (
                record.target,
                record.points,
                record.generators,
            )
            same = all(run.record.facts.get(key) == value for key, value in record.facts.items() if key != "boot_id")
            if comparable and same and run.record.blocks >= stats.MIN_BLOCKS and run.record.id != record.id:
                return [sample for sample in run.samples() if counts(sample)]
        except UsageError:
            continue  # a damaged run is no guide; it is reported when it is asked for
    return []


def _duration_s(planned: Plan, past: Sequence[Sample]) -> float:
    bring_ups = [sample.bring_up_s for sample in past if sample.bring_up_s is not None]
    bring_up_s = float(np.median(bring_ups)) if bring_ups else BRING_UP_S
    return planned.measuring_s + planned.bring_ups * bring_up_s + len(planned.slots) * SAMPLE_OVERHEAD_S


def _resolution(planned: Plan, past: Sequence[Sample]) -> Resolution:
    """From the A/A pairs of an earlier run here, else from the lab's prior: for the rate of the first point, or CPU per request."""
    if planned.blocks < stats.MIN_BLOCKS:
        return Resolution(None, f"fewer than {stats.MIN_BLOCKS} blocks give no interval")
    spreads = [spread for point in planned.points if (spread := _spread(past, point)) is not None]
    if spreads:
        return Resolution(
            stats.resolvable(min(spreads), planned.blocks),
            "from the A/A pairs of an earlier run here",
        )
    prior = PRIOR_CV * float(np.sqrt(2))
    return Resolution(
        stats.resolvable(prior, planned.blocks),
        "a guess until this machine has an A/A run of its own",
    )


def _spread(past: Sequence[Sample], point: Point) -> float | None:
    """Standard deviation of the A/A log-ratios of CPU per request at a point."""
    cost = {(s.block, s.role): s.cpu_per_request_s for s in past if s.valid and s.point == point}
    pairs = [(a, cost.get((block, "again"))) for (block, role), a in cost.items() if role == "baseline"]
    ratios = [float(np.log(b / a)) for a, b in pairs if a and b]
    return float(np.std(ratios, ddof=1)) if len(ratios) >= stats.MIN_BLOCKS else None
