"""From what was asked for (variants, sweep, target) to a run that can be measured: everything is checked before anything starts."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab import facts, generators, store
from lab.errors import NotMeasurableError, UsageError
from lab.files import check_writable
from lab.forecast import Forecast, forecast
from lab.knobs import MANIFESTS
from lab.measurement import Chosen, load_of
from lab.plan import Plan, arms_for, plan
from lab.records import NotMeasured, RunRecord, VariantRecord, now
from lab.run import stale_blocks
from lab.store import RunStore
from lab.sweeps import Point, load_sweep
from lab.targets.base import Endpoint, Target
from lab.variants import Variant, config_snippet, load_variant, reference_name

CLUSTER = "cluster"
"""The fact by which a cluster is known again."""
SAMPLE_BYTES = 2_000_000  # more than a sample's folder takes


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for."""

    variants: tuple[str, ...]
    sweep: str
    blocks: int | None = None
    seed: int | None = None
    label: str | None = None
    """What the run is called by instead of its variants."""
    study: str | None = None
    manifests: Path | None = None
    """Another folder of manifests than the checkout's; it must lie in the runs folder, so that the run can be resumed."""


class NothingMeasurableError(UsageError):
    """Nothing that was asked for can be shown here (exit 2); `missing` says why, one by one."""

    def __init__(self, missing: Sequence[NotMeasured]) -> None:
        self.missing = tuple(missing)
        named = "; ".join(map(str, missing))
        super().__init__("bench", f"nothing to measure: {named}", "ask for what this machine can show: `just list`")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run ready to be measured, and what is known about it beforehand."""

    record: RunRecord
    plan: Plan
    variants: Mapping[str, Variant]
    chosen: Mapping[str, Chosen]
    forecast: Forecast


def prepare(request: Request, target: Target, command: Sequence[str]) -> Prepared:
    """Load and check everything; UsageError on the first fault. Starts nothing, writes nothing.

    What cannot be shown here is left out and recorded; NothingMeasurableError if that leaves nothing.
    """
    sweep_name, sweep = load_sweep(request.sweep)
    points = sweep.expanded()
    manifests = request.manifests or MANIFESTS
    asked = {name: load_variant(name, manifests) for name in dict.fromkeys(request.variants)}
    reference = reference_name(manifests)
    needed = [*asked, *(variant.compared_with for variant in asked.values()), reference]
    loaded = {name: asked.get(name) or load_variant(name, manifests) for name in dict.fromkeys(needed) if name}
    target.check()
    missing, ends = _checked(loaded, target, points)
    wanted = {name: variant for name, variant in asked.items() if name not in missing}
    if not wanted:
        raise NothingMeasurableError([missing[name] for name in asked])
    arms = arms_for(
        [(name, variant.compared_with) for name, variant in wanted.items()], None if reference in missing else reference
    )
    variants = {arm.variant: loaded[arm.variant] for arm in arms}
    chosen = {point.name: choose(point, target) for point in points}
    for name in variants:
        _refuse_loads(name, points, chosen, ends[name])
    blocks = request.blocks or sweep.blocks
    seed = request.seed if request.seed is not None else secrets.randbelow(2**31)
    planned = plan(arms, points, blocks, seed)
    check_writable(store.runs_folder(), len(planned.slots) * SAMPLE_BYTES)
    left_out = tuple(missing[name] for name in dict.fromkeys((*asked, *missing)) if name in missing)
    record = _record(request, target, command, sweep_name, planned, variants, chosen, left_out)
    return Prepared(record, planned, variants, chosen, forecast(record, target.bring_up_s))


def resume(name: str, target: Target) -> tuple[Prepared, RunStore]:
    """An interrupted run of this target, ready to go on: the same manifests and generators, or UsageError."""
    run = RunStore.open(name)
    record = run.record
    manifests = run.folder.parent / record.manifests if record.manifests else MANIFESTS
    variants = {arm.variant: load_variant(arm.variant, manifests) for arm in record.arms}
    target.check()
    _refuse_elsewhere(record, target.facts())
    chosen = {point.name: choose(point, target) for point in record.points}
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
    return Prepared(record, record.plan(), variants, chosen, forecast(record, target.bring_up_s)), run


def _refuse_elsewhere(record: RunRecord, found: Mapping[str, str]) -> None:
    """Of two clusters nothing is pooled: what is there already would stay."""
    began, now_on = record.facts.get(CLUSTER), found.get(CLUSTER)
    if began != now_on:
        fault = f"it began on another cluster ({began}; this one is {now_on})"
        raise UsageError(record.id, fault, "name the context it began with, or start a new run")


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


def choose(point: Point, target: Target) -> Chosen:
    """The generator for a point as the target has it, or the one that stands in for it."""
    used, why = generators.choose(point.generator, load_of(point, _placeholder(point)), target.installed)
    installed = target.installed(used)
    assert installed is not None  # choose() has found it
    if why is None:
        return Chosen(used, installed.path, installed.version, None)
    return Chosen(used, installed.path, installed.version, point.generator, (why,))


def _placeholder(point: Point) -> Endpoint:
    """Stands for the system, of which only what the point says is known before it is up: `all` routes are more than one."""
    routes = max(2, point.connections) if point.routes == "all" else point.routes
    hosts = tuple(f"r{number}.lab.test" for number in range(routes))
    secure = "http" if point.tls in ("none", "routed") else "https"
    tls = "none" if point.tls == "routed" else point.tls
    return Endpoint(f"{secure}://{hosts[0]}", hosts[0], hosts, tls)


def _record(
    request: Request,
    target: Target,
    command: Sequence[str],
    sweep: str,
    planned: Plan,
    variants: Mapping[str, Variant],
    chosen: Mapping[str, Chosen],
    left_out: tuple[NotMeasured, ...],
) -> RunRecord:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    label = (request.label or "-".join(request.variants)).replace("+", "-")[:40]
    manifests = request.manifests.relative_to(store.runs_folder()) if request.manifests else None
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
        variants={name: _variant_record(variant, request.manifests or MANIFESTS) for name, variant in variants.items()},
        generators={point: _generator_record(used) for point, used in chosen.items()},
        facts=_facts(target),
        git_commit=facts.git_commit(),
        not_measurable=left_out,
        study=request.study,
        manifests=str(manifests) if manifests else None,
    )


def _checked(
    variants: Mapping[str, Variant], target: Target, points: Sequence[Point]
) -> tuple[dict[str, NotMeasured], dict[str, Mapping[str, Endpoint]]]:
    """Those that the target cannot show and those whose baseline it cannot; of the others, where each point's load goes."""
    missing: dict[str, NotMeasured] = {}
    ends: dict[str, Mapping[str, Endpoint]] = {}
    for variant in variants.values():
        try:
            ends[variant.name] = target.check_variant(variant, points)
        except NotMeasurableError as error:
            missing[variant.name] = NotMeasured(variant=variant.name, what=error.what, why=error.why)
    for variant in variants.values():
        base = missing.get(variant.compared_with or "")
        if base and variant.name not in missing:
            why = f"its baseline {base.variant} is not measurable here: {base.why}"
            missing[variant.name] = NotMeasured(variant=variant.name, what=base.what, why=why)
    return missing, ends


def _refuse_loads(
    variant: str, points: Sequence[Point], chosen: Mapping[str, Chosen], ends: Mapping[str, Endpoint]
) -> None:
    """UsageError for a load that its generator cannot make on this variant's hosts, or where its TLS ends."""
    for point in points:
        used = chosen[point.name].generator
        if refusal := used.refusal(load_of(point, ends[point.name])):
            fault = f"{used.name} cannot make this load on '{variant}': {refusal}"
            raise UsageError(f"point {point.name}", fault, "choose another sweep, or measure the others without it")


def _facts(target: Target) -> dict[str, str]:
    return facts.machine() | dict(target.facts())


def _variant_record(variant: Variant, manifests: Path) -> VariantRecord:
    return VariantRecord(
        name=variant.name,
        title=variant.title,
        baseline=variant.compared_with,
        knobs=tuple(knob.name for knob in variant.knobs),
        own_knobs=variant.own_knobs,
        primary_metric=variant.primary_metric,
        hypothesis_sweep=variant.sweep,
        manifests_sha256=_digest(variant),
        snippet=config_snippet(variant, manifests),
        needs=variant.needs,
    )


def _digest(variant: Variant) -> str:
    return hashlib.sha256(json.dumps(variant.manifests, sort_keys=True).encode()).hexdigest()


def _generator_record(used: Chosen) -> dict[str, str | None]:
    return {
        "name": used.generator.name,
        "version": used.version,
        "stand_in_for": used.stand_in_for,
    }
