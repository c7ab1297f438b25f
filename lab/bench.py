"""From what was asked for (variants, sweep, target) to a run that can be measured: everything is checked before anything starts."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from lab import facts, generators, store
from lab.errors import UsageError
from lab.files import check_writable
from lab.forecast import Forecast, forecast
from lab.measurement import Chosen, load_of
from lab.plan import Plan, arms_for, plan
from lab.records import RunRecord, VariantRecord, now
from lab.run import stale_blocks
from lab.store import RunStore
from lab.sweeps import Point, load_sweep
from lab.targets.base import Endpoint, Target
from lab.variants import Variant, config_snippet, load_variant, reference_name

SAMPLE_BYTES = 2_000_000  # more than a sample's folder takes
QUEUE_SYSCTLS = ("net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog")
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
    forecast: Forecast


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
    check_writable(store.runs_folder(), len(planned.slots) * SAMPLE_BYTES)
    record = _record(request, target, command, sweep_name, planned, variants, chosen)
    return Prepared(record, planned, variants, chosen, forecast(record))


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
    check_writable(run.folder, SAMPLE_BYTES)
    return Prepared(record, record.plan(), variants, chosen, forecast(record)), run


@contextmanager
def opened(prepared: Prepared, run: RunStore | None, target: Target) -> Iterator[RunStore]:
    """The run's folder, for this lab alone: a new one, or `run` with what was interrupted for too long marked to begin anew."""
    if run is None:
        run = RunStore.create(prepared.record, {name: variant.manifests for name, variant in prepared.variants.items()})
        with run.locked():
            yield run
        return
    with run.locked():
        found = _facts(target)
        run.clear_partial()
        run.mark_interrupted(stale_blocks(run, found))
        run.note_resumed(found)
        yield run


def overflow_is_subject(variants: Iterable[Variant]) -> bool:
    """Whether a knob of the run sets an accept queue: then dropped connections are what is looked at, not a fault."""
    checks = [check for variant in variants for check in variant.readback]
    return any(check.kind == "backlog" or check.name in QUEUE_SYSCTLS for check in checks)


def choose(point: Point) -> Chosen:
    """The generator for a point, or the one that stands in for it."""
    used, why = generators.choose(point.generator, load_of(point, PLACEHOLDER))
    installed = generators.find(used)
    assert installed is not None  # choose() has found it
    if why is None:
        return Chosen(used, installed.path, installed.version, None)
    return Chosen(used, installed.path, installed.version, point.generator, (why,))


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
        created_at=now(),
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
