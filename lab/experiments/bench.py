"""From what was asked for (variants, sweep, target) to a run that can be measured: everything is checked before anything starts."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from lab import generators
from lab.analysis.forecast import Conditions, Forecast, forecast
from lab.analysis.noise import PRIMARY, aa_arms
from lab.base.errors import NotMeasurableError, UsageError
from lab.base.files import check_writable, runs_folder
from lab.experiments.at_knee import Place, placed
from lab.experiments.resolve import Resolve, Subject, choose_blocks
from lab.generators.k6 import K6, Out
from lab.generators.loads import load_of
from lab.measure.loop import stale_blocks
from lab.measure.steady import Chosen
from lab.model import facts
from lab.model.endpoint import Endpoint
from lab.model.metrics import LABELS
from lab.model.names import DEFAULT_TARGET
from lab.model.plan import Plan, arms_for, plan
from lab.model.run import K6_OUT, NotMeasured, RunRecord, VariantRecord, now
from lab.model.sweeps import DEFAULT_SWEEP, Point
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, config_snippet, load_variant, reference_name
from lab.records import store
from lab.records.store import RunStore
from lab.records.sweep_files import load_sweep
from lab.targets.base import Target

CLUSTER = "cluster"
"""The fact by which a cluster is known again."""
K6_WROTE = "k6 wrote rows of its own beside, which cost it CPU"
SAMPLE_BYTES = 2_000_000  # more than a sample's folder takes


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for."""

    variants: tuple[str, ...]
    sweep: str | None = None
    """None: the one that the variants' hypotheses name, if something is done to the system in it; else DEFAULT_SWEEP."""
    blocks: int | None = None
    seed: int | None = None
    label: str | None = None
    """What the run is called by instead of its variants."""
    study: str | None = None
    manifests: Path | None = None
    """Another folder of manifests than the checkout's; it must lie in the runs folder, so that the run can be resumed."""
    k6_out: Out | None = None
    """What k6 is to leave of its own outputs, kept beside the samples."""
    resolve: Resolve | None = None
    """Choose the blocks such that this effect is found."""
    nulls: int | None = None
    """Measure the one variant against itself, under so many more names than two; None = against its baseline."""
    knee: str | None = None
    """Of a sweep whose points are placed at a knee: which one, a run or a rate; None = the latest that fits."""


class NothingMeasurableError(UsageError):
    """Nothing that was asked for can be shown here (exit 2); `missing` says why, one by one."""

    def __init__(self, missing: Sequence[NotMeasured]) -> None:
        self.missing = tuple(missing)
        named = "; ".join(map(str, missing))
        told = [item for item in missing if item.remedy]
        alike = len({item.remedy for item in told}) == 1
        remedies = dict.fromkeys(item.remedy if alike else f"{item.variant}: {item.remedy}" for item in told)
        super().__init__(
            "bench", f"nothing to measure: {named}", "; ".join(remedies) or "name another: see `just list`"
        )


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
    manifests = request.manifests or MANIFESTS
    sweep_name, sweep = load_sweep(_own_sweep(request.variants, manifests) if request.sweep is None else request.sweep)
    points = sweep.expanded()
    fixtures = fixtures_of(points)
    asked = {name: load_variant(name, manifests, fixtures) for name in dict.fromkeys(request.variants)}
    steady = any(point.disturbance is None for point in points)
    reference = reference_name(manifests) if steady else None  # there is nothing in it to disturb
    itself = request.nulls is not None
    against = [] if itself else [variant.compared_with for variant in asked.values()]
    needed = [*asked, *against, reference]
    loaded = {
        name: asked.get(name) or load_variant(name, manifests, fixtures) for name in dict.fromkeys(needed) if name
    }
    target.check()
    found_facts = facts_of(target)
    root_of = {name: name if itself else variant.compared_with or name for name, variant in asked.items()}
    digests = {name: _digest(loaded[name]) for name in root_of.values()}
    as_searched = {} if fixtures else digests  # a search has none of them
    points, at_knee = placed(points, request.knee, Place(tuple(digests), target.name, found_facts, as_searched))
    missing, ends = _checked(loaded, target, points)
    wanted = {name: variant for name, variant in asked.items() if name not in missing}
    if not wanted:
        raise NothingMeasurableError([missing[name] for name in asked])
    once = None if reference in missing else reference
    if request.nulls is not None:
        arms = aa_arms(next(iter(wanted)), request.nulls, once)
    else:
        arms = arms_for([(name, variant.compared_with) for name, variant in wanted.items()], once)
    variants = {arm.variant: loaded[arm.variant] for arm in arms}
    chosen = {point.name: choose(point, target, request.k6_out) for point in points}
    if request.k6_out:
        _refuse_k6_out(sweep_name, chosen, target)
    for name in variants:
        _refuse_loads(name, points, chosen, ends[name])
    choice = None
    if request.resolve:
        used_here = {point: generator_record(used) for point, used in chosen.items()}
        subjects = [
            Subject(name, root_of[name], variant.primary_metric, variant.needs, digests[root_of[name]])
            for name, variant in wanted.items()
        ]
        conditions = Conditions(target.name, tuple(points), used_here, found_facts)
        named = request.sweep or sweep_name
        choice = choose_blocks(request.resolve, subjects, conditions, named, at_knee, request.k6_out)
    blocks = choice.blocks if choice else request.blocks or sweep.blocks
    seed = request.seed if request.seed is not None else secrets.randbelow(2**31)
    planned = plan(arms, points, blocks, seed)
    check_writable(runs_folder(), len(planned.slots) * SAMPLE_BYTES)
    left_out = tuple(missing[name] for name in dict.fromkeys((*asked, *missing)) if name in missing)
    record = _record(request, target, command, sweep_name, planned, variants, chosen, left_out, found_facts)
    record = record.model_copy(update={"at_knee": at_knee})
    if choice:
        record = record.model_copy(update={"planned_for": choice.planned_for})
    known = forecast(record, target.bring_up_s, choice.past if choice else None)
    return Prepared(record, planned, variants, chosen, known)


def resume(
    name: str, target: Target, of_trial: Callable[[Point, Target], Chosen] | None = None
) -> tuple[Prepared, RunStore]:
    """An interrupted run of this target, ready to go on: the same manifests and generators, or UsageError.

    `of_trial` chooses the generator of a search for the knee, which the run must be then; else it must be none.
    """
    run = RunStore.open(name)
    record = run.record
    if (record.knee is None) != (of_trial is None):
        what, verb = ("a run", "bench") if of_trial else ("a search for a knee", "knee")
        raise UsageError(record.id, f"is {what}", f"go on with `just {verb} --resume {record.id}`")
    manifests = run.folder.parent / record.manifests if record.manifests else MANIFESTS
    fixtures = fixtures_of(record.points)
    variants = {arm.variant: load_variant(arm.variant, manifests, fixtures) for arm in record.arms}
    target.check()
    _refuse_elsewhere(record, target.facts())
    chosen = {
        point.name: of_trial(point, target) if of_trial else choose(point, target, _k6_out(record, point))
        for point in record.points
    }
    for variant in variants.values():
        if _digest(variant) != record.variants[variant.name].manifests_sha256:
            fault = f"the manifests of '{variant.name}' have changed since this run began"
            raise UsageError(record.id, fault, "start a new run, or restore the manifests")
    for point, used in record.generators.items():
        now_used = generator_record(chosen[point])
        if now_used != used:
            fault = f"it measured {point} with {used['name']} {used['version']}, now there is {now_used['name']} {now_used['version']}"
            raise UsageError(record.id, fault, "start a new run, or restore the generator")
    for variant in variants.values():
        ends = checked(variant, target, record.points)
        if of_trial is None:
            _refuse_loads(variant.name, record.points, chosen, ends)
    check_writable(run.folder, SAMPLE_BYTES)
    return Prepared(record, record.plan(), variants, chosen, forecast(record, target.bring_up_s)), run


def _own_sweep(variants: Sequence[str], manifests: Path) -> str:
    """What no steady load could show is measured in the sweep that its hypothesis names. UsageError when they name several."""
    named = {sweep: name for name in variants if (sweep := load_variant(name, manifests).sweep) is not None}
    if not any(point.disturbance is not None for sweep in named for point in load_sweep(sweep)[1].expanded()):
        return DEFAULT_SWEEP
    if len(named) > 1:
        wanted = ", ".join(f"{name} {sweep}" for sweep, name in named.items())
        raise UsageError("bench", f"each of these has a sweep of its own: {wanted}", "name one by --sweep")
    return next(iter(named))


def fixtures_of(points: Sequence[Point]) -> tuple[str, ...]:
    wanted = [name for point in points if point.disturbance is not None for name in point.disturbance.fixtures]
    return tuple(dict.fromkeys(wanted))


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
        found, commit = facts_of(target), facts.git_commit()
        run.clear_partial()
        run.mark_interrupted(stale_blocks(run, found))
        lab = {"git_commit": commit} if commit and commit != run.record.git_commit else {}
        run.note_resumed(found | lab)
        yield run


def choose(point: Point, target: Target, k6_out: Out | None = None) -> Chosen:
    """The generator for a point as the target has it, or the one that stands in for it; k6 leaves `k6_out` of its own."""
    used, why = generators.choose(point.generator, load_of(point, _placeholder(point)), target.installed)
    installed = target.installed(used)
    assert installed is not None  # choose() has found it
    notes = () if why is None else (why,)
    keep: tuple[str, ...] = ()
    if isinstance(used, K6) and k6_out:
        used = replace(used, out=k6_out)
        keep = used.left
        notes += (f"{K6_WROTE} ({k6_out})",) if k6_out != "summary" else ()
    return Chosen(used, installed.path, installed.version, point.generator if why else None, notes, keep)


def _refuse_k6_out(sweep: str, chosen: Mapping[str, Chosen], target: Target) -> None:
    if target.name != DEFAULT_TARGET:
        fault = f"on target '{target.name}' k6 runs in a pod, and the files it writes stay there"
        raise UsageError("--k6-out", fault, f"leave it out, or measure with --target {DEFAULT_TARGET}")
    if not any(used.keep for used in chosen.values()):
        made_by = ", ".join(dict.fromkeys(used.generator.name for used in chosen.values()))
        fault = f"no load of sweep '{sweep}' is made by k6 here, all by {made_by}"
        raise UsageError(
            "--k6-out", fault, 'leave it out, or name a sweep by --sweep whose points say generator = "k6"'
        )


def _k6_out(record: RunRecord, point: Point) -> Out | None:
    """As the run began: all its samples are measured alike."""
    found = record.k6_out(point.name)
    return next((known for known in get_args(Out) if known == found), None)


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
    found_facts: Mapping[str, str],
) -> RunRecord:
    manifests = request.manifests.relative_to(runs_folder()) if request.manifests else None
    recorded = {
        name: (_null_record if request.nulls is not None and name in request.variants else variant_record)(
            variant, request.manifests or MANIFESTS
        )
        for name, variant in variants.items()
    }
    label = request.label or "-".join(request.variants)
    record = new_record(label, sweep, target, command, planned, recorded, chosen, found_facts)
    more = {"not_measurable": left_out, "study": request.study, "manifests": str(manifests) if manifests else None}
    return record.model_copy(update=more)


def new_record(
    label: str,
    sweep: str,
    target: Target,
    command: Sequence[str],
    planned: Plan,
    variants: Mapping[str, VariantRecord],
    chosen: Mapping[str, Chosen],
    found_facts: Mapping[str, str],
) -> RunRecord:
    """What every run's record has, with an id of its own. `chosen`: point → its generator."""
    return RunRecord(
        id=store.new_id(f"{label.replace('+', '-')[:40]}-{sweep}"),
        created_at=now(),
        command=tuple(command),
        target=target.name,
        sweep=sweep,
        seed=planned.seed,
        blocks=planned.blocks,
        arms=planned.arms,
        points=planned.points,
        slots=tuple((slot.block, slot.arm.name, slot.point.name) for slot in planned.slots),
        variants=dict(variants),
        generators={point: generator_record(used) for point, used in chosen.items()},
        facts=dict(found_facts),
        git_commit=facts.git_commit(),
    )


def checked(variant: Variant, target: Target, points: Sequence[Point]) -> Mapping[str, Endpoint]:
    """Where each point's load goes. UsageError, or NotMeasurableError, for what the target or a disturbance cannot do to this variant."""
    ends = target.check_variant(variant, points)
    for point in points:
        if point.disturbance is not None:
            try:
                point.disturbance.vet(variant.manifests)
            except NotMeasurableError as error:
                raise NotMeasurableError(
                    error.what, f"{variant.name}: {error.place}", error.why, error.remedy
                ) from None
            except UsageError as error:
                raise UsageError(f"{variant.name}: {error.place}", error.fault, error.remedy) from None
    return ends


def _checked(
    variants: Mapping[str, Variant], target: Target, points: Sequence[Point]
) -> tuple[dict[str, NotMeasured], dict[str, Mapping[str, Endpoint]]]:
    """Those that the target cannot show and those whose baseline it cannot; of the others, where each point's load goes."""
    missing: dict[str, NotMeasured] = {}
    ends: dict[str, Mapping[str, Endpoint]] = {}
    for variant in variants.values():
        try:
            ends[variant.name] = checked(variant, target, points)
        except NotMeasurableError as error:
            missing[variant.name] = NotMeasured(
                variant=variant.name, what=error.what, why=error.why, remedy=error.remedy
            )
    for variant in variants.values():
        base = missing.get(variant.compared_with or "")
        if base and variant.name not in missing:
            why = f"its baseline {base.variant} is not measurable here: {base.why}"
            missing[variant.name] = NotMeasured(variant=variant.name, what=base.what, why=why, remedy=base.remedy)
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


def facts_of(target: Target) -> dict[str, str]:
    """Of this machine and of the target on it."""
    return facts.machine() | dict(target.facts())


def variant_record(variant: Variant, manifests: Path) -> VariantRecord:
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


def _null_record(variant: Variant, manifests: Path) -> VariantRecord:
    """Of a variant that is compared with itself: it adds nothing, there is nothing to apply, and any load shows that."""
    record = variant_record(variant, manifests)
    metric = record.primary_metric if record.primary_metric in LABELS else PRIMARY
    changed = {"baseline": record.name, "own_knobs": (), "primary_metric": metric, "hypothesis_sweep": None}
    return record.model_copy(update={**changed, "snippet": "", "needs": ""})


def _digest(variant: Variant) -> str:
    return hashlib.sha256(json.dumps(variant.manifests, sort_keys=True).encode()).hexdigest()


def generator_record(used: Chosen) -> dict[str, str | None]:
    return {
        "name": used.generator.name,
        "version": used.version,
        "stand_in_for": used.stand_in_for,
    } | ({K6_OUT: used.generator.out} if isinstance(used.generator, K6) and used.generator.out else {})
