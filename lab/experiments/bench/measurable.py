"""The part of a request that a target can measure: its variants, loads and load generators, and the beginning of run.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab import generators
from lab.analysis import rerun
from lab.analysis.knee.report import build_report, describe_difference
from lab.analysis.noise import PRIMARY, make_aa_arms
from lab.base.errors import UsageError, refuse_if
from lab.base.files import runs_folder
from lab.experiments.bench.request import LoadedRequest
from lab.generators.k6 import K6, Out
from lab.measure.measurement import ChosenGenerator
from lab.model.endpoint import Endpoint
from lab.model.metrics import RATIOS
from lab.model.pairs import SIDES
from lab.model.plan import list_arms
from lab.model.run import K6_OUT, AtKnee, NotMeasured, RunRecord, VariantRecord
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import Variant
from lab.records.store import RunStore, new_record
from lab.targets.base import Target
from lab.targets.survey import survey_target

K6_ROWS_NOTE = "k6 also wrote rows of its own, which cost it CPU"
CARRIED_RPS_PER_CPU = 1000.0
"""The rate, in requests per second and CPU of two systems together, up to which no probe is needed.

A probe tries whether two systems at once can serve a load. Machines whose CPUs the lab divides can serve this rate: on
two CPUs all committed concurrent pairs at 1,000 req/s per side are valid (data/reference, local and apiserver). On
clusters every rate is probed.
"""


class NothingMeasurableError(UsageError):
    """The error for a request of which nothing can be measured on this machine and target (exit status 2).

    Args:
        missing: The variants that are not measurable, each with its reason.
        notes: Further lines for the message.

    """

    def __init__(self, missing: Sequence[NotMeasured], notes: Sequence[str] = ()) -> None:
        self.missing = tuple(missing)
        names = "; ".join(map(str, missing))
        remediable = [item for item in missing if item.remedy]
        alike = len({item.remedy for item in remediable}) == 1
        remedies = dict.fromkeys(item.remedy if alike else f"{item.variant}: {item.remedy}" for item in remediable)
        remedy = "; ".join(remedies) or "name another: see `just list`"
        super().__init__("bench", f"nothing to measure: {names}", "\n  ".join([remedy, *notes]))


@dataclass(frozen=True, slots=True)
class MeasurableRun:
    """The part of a bench request that a target can measure, with everything needed to plan the run."""

    record: RunRecord
    """The beginning of run.json, without generators, slots and design."""
    asked: Mapping[str, Variant]
    """The requested variants that are measurable."""
    variants: Mapping[str, Variant]
    """The variants of the arms."""
    endpoints: Mapping[str, Mapping[str, Endpoint]]
    """The endpoint of the load, by variant and point."""
    to_probe: tuple[LoadPoint, ...] = ()
    """The load points with an offered rate and pairs; it is unknown whether two systems at once can serve them on the target."""


def find_measurable(loaded: LoadedRequest, target: Target, command: Sequence[str]) -> MeasurableRun:
    """Return the part of a request that can be measured on a target.

    A variant is left out if it or its baseline is not measurable.

    Args:
        loaded: The request with its loads and variants.
        target: The target.
        command: The command line for the record.

    Raises:
        NothingMeasurableError: No requested variant is measurable here.
        UsageError: The request cannot be carried out; the error is the first fault.

    """
    request, against = loaded.request, loaded.against
    surveyed = survey_target(target, loaded.variants.values(), loaded.points)
    points, at_knee = surveyed.points, None
    if request.knee is not None or any(point.of_knee is not None for point in points):
        points, at_knee = place_at_knee(
            points, request.knee, list(dict.fromkeys(loaded.baselines.values())), target.name
        )
    missing = dict(surveyed.missing)
    for name in loaded.variants:
        base = missing.get(against.get(name) or "")
        if base and name not in missing:
            reason = f"its baseline {base.variant} is not measurable here: {base.why}"
            missing[name] = NotMeasured(variant=name, what=base.what, why=reason, remedy=base.remedy)
    requested = {name: variant for name, variant in loaded.asked.items() if name not in missing}
    if not requested:
        raise NothingMeasurableError([missing[name] for name in loaded.asked])
    reference = None if loaded.reference in missing else loaded.reference
    if request.nulls is not None:
        arms = make_aa_arms(next(iter(requested)), request.nulls, reference)
    else:
        arms = list_arms([(name, against[name]) for name in requested], reference)
    variants = {arm.variant: loaded.variants[arm.variant] for arm in arms}
    record = new_record(
        request.label or "-".join(request.variants),
        loaded.sweep_name,
        target.name,
        command,
        arms,
        points,
        {name: _build_record(loaded, name, surveyed.unpaired) for name in variants},
        surveyed.facts,
    )
    changes = {
        "not_measurable": tuple(missing[name] for name in dict.fromkeys((*loaded.asked, *missing)) if name in missing),
        "study": request.study,
        "manifests": str(request.manifests.relative_to(runs_folder())) if request.manifests else None,
        "at_knee": at_knee,
        "margin": request.margin,
    }
    paired, to_probe = record.variants.get(next(iter(loaded.baselines.values()))), tuple[LoadPoint, ...]()
    if len(target.sides) == len(SIDES) and paired is not None and not paired.unpaired:
        pinned = len(frozenset[int]().union(*target.cpus().values()))
        carried_rps = CARRIED_RPS_PER_CPU * pinned / len(SIDES)
        to_probe = tuple(
            point
            for point in points
            if point.rate_rps is not None
            and not (point.why_alone or point.disturbance or (pinned and point.rate_rps <= carried_rps))
        )
    return MeasurableRun(record.model_copy(update=changes), requested, variants, surveyed.endpoints, to_probe)


def _build_record(loaded: LoadedRequest, name: str, unpaired: Mapping[str, str]) -> VariantRecord:
    """Return the record of a variant, adapted to what the request compares the variant with.

    In an A/A run the variant is its own baseline. So the record has no settings that a user could apply, no load for them, and no
    shared-resource cost. If the request names another baseline (`--against`), the record has no settings to apply either.

    The record also determines how a comparison is decided. Usually this is by pairs (two variants measured at once). It is by
    solo samples (each variant has the machine alone) in two cases: if the variants may differ in the use of a resource that
    two systems on one machine share, or if one of them cannot run at the same time as a second system.

    Args:
        loaded: The request with its loads and variants.
        name: The name of the variant.
        unpaired: Variant → why no second system can be up at the same time; empty text where one can.

    """
    request, variant = loaded.request, loaded.variants[name]
    changed: dict[str, Any] = {"unpaired": unpaired[name]}
    if request.nulls is not None and name in request.variants:
        metric = variant.primary_metric if variant.primary_metric in RATIOS else PRIMARY
        changed |= {"baseline": name, "own_knobs": (), "primary_metric": metric, "hypothesis_sweep": None}
        changed |= {"snippet": "", "needs": "", "shared_cost": False}
    elif unpaired[name] or unpaired.get(loaded.against.get(name) or ""):
        changed["shared_cost"] = True
    if request.against and (base_name := loaded.against.get(name)) is not None:
        base = loaded.variants[base_name]
        changed |= {"baseline": base_name, "primary_metric": request.primary or variant.primary_metric or PRIMARY}
        changed |= {} if base_name == variant.compared_with else {"snippet": "", "own_knobs": ()}
        knobs, base_knobs = ({knob.name: knob for knob in system.knobs} for system in (variant, base))
        differs_in_cost = any((knobs | base_knobs)[knob].cost == "shared" for knob in knobs.keys() ^ base_knobs.keys())
        changed.setdefault("shared_cost", variant.root_cost != base.root_cost or differs_in_cost)
    return VariantRecord.of(variant, loaded.manifests, **changed)


# -- the knee at which a sweep's loads are placed, from an earlier search (`just knee`) or a given rate --------------


def place_at_knee(
    points: Sequence[LoadPoint], knee: str | None, baselines: Sequence[str], target: str
) -> tuple[tuple[LoadPoint, ...], AtKnee]:
    """Compute the rates of load points whose rate is given as a fraction of a knee (the highest rate within a latency bound).

    All variants of a run are measured at the same rates, which are computed from the knee of their baseline. So the run shows
    which variant answers faster under the same load.

    Args:
        points: The load points.
        knee: Either the knee itself, as a number of requests per second. Or the name of a run that searched for it, with the same load
            and target. None: the user gave neither, which is an error.
        baselines: The baselines of the request. The knee of the first baseline that has one in that run is used.
        target: The name of the target.

    Returns:
        (the load points with their rates, the knee).

    Raises:
        UsageError: No load point depends on a knee, the user gave no knee, or the given one cannot be used.

    """
    relative = [point for point in points if point.of_knee is not None]
    refuse_if(not relative, "--knee", "no load of this sweep is placed at a knee", "leave it out, or --sweep at-knee")
    search = f"find it with `just knee {baselines[0]}{rerun.place(target)}{_format_options(relative[0])}`"
    if knee is None:
        fault = "this sweep's loads are placed at a knee, and none is named"
        raise UsageError("--knee", fault, f"{search}, or name a rate: --knee 2000")
    try:
        rate_rps = float(knee.replace(",", ""))
    except ValueError:
        at_knee = _read_knee(RunStore.open(knee), relative, baselines, target, search)
    else:
        fault = f"expected 1 to 10,000,000 requests per second, got {knee}"
        refuse_if(not 1 <= rate_rps <= 10_000_000, "--knee", fault, "name a rate or a run")
        at_knee = AtKnee(rate_rps=rate_rps, run=None, variant=None)
    return tuple(point.at_rate(at_knee.rate_rps) for point in points), at_knee


def _read_knee(
    run: RunStore, relative: Sequence[LoadPoint], baselines: Sequence[str], target: str, search: str
) -> AtKnee:
    record = run.record
    refuse_if(record.knee is None, "--knee", f"run {record.id} is no search for a knee", search)
    if record.target != target:
        raise UsageError("--knee", f"the knee of {record.id} is of target '{record.target}', not '{target}'", search)
    if difference := describe_difference(record.points[0], relative):
        raise UsageError("--knee", f"the knee of {record.id} is of another load: {difference}", search)
    knees = {knee.variant: knee for knee in build_report(run).knees}
    variant = next((name for name in (*baselines, *(knees if len(knees) == 1 else ())) if name in knees), None)
    if variant is None:
        fault = f"run {record.id} has no knee of {', '.join(baselines)}, only of {', '.join(knees)}"
        raise UsageError("--knee", fault, "name a rate instead")
    result = knees[variant]
    if result.rate_rps is None:
        raise UsageError("--knee", f"run {record.id} found no knee: {result.why}", "name another run, or a rate")
    return AtKnee(rate_rps=result.rate_rps, run=record.id, variant=variant, at_least=result.at_least)


def _format_options(point: LoadPoint) -> str:
    """Return the options with which `just knee` makes a load, such as ` --connections 64 --close`.

    Options with their default value are left out, and so are parts of the load for which there is no option.
    """
    options = f" --connections {point.connections}" if point.connections != 100 else ""
    options += f" --page {point.page}" if point.page != "1kB.bin" else ""
    options += f" --tls {point.tls}" if point.tls != "routed" else ""
    options += f" --accept-encoding {point.accept_encoding}" if point.accept_encoding != "identity" else ""
    return options + ("" if point.keepalive else " --close")


# -- the generator of each point's load, and its limits on every variant ----------------------------------------


def choose_generator(point: LoadPoint, target: Target, k6_out: Out | None = None) -> ChosenGenerator:
    """Return the load generator for a load point as it is installed on the target, or a substitute for it.

    A substitute is used if the requested generator is not installed there and the load has an offered rate (open loop). If the
    load goes to all routes (`routes = "all"`), their number is not known before a system is up, so more than one is assumed.

    Args:
        point: The load point (one load of a sweep).
        target: The target.
        k6_out: The form of output that k6 keeps, if k6 is the generator.

    """
    routes = max(2, point.connections) if point.routes == "all" else point.routes
    hosts = tuple(f"r{number}.lab.test" for number in range(routes))
    secure = "http" if point.tls in ("none", "routed") else "https"
    placeholder = Endpoint(f"{secure}://{hosts[0]}", hosts[0], hosts, "none" if point.tls == "routed" else point.tls)
    load = generators.make_load(point, placeholder)
    used, installed, reason = generators.choose(point.generator, load, target.installed)
    notes = () if reason is None else (reason,)
    keep: tuple[str, ...] = ()
    if isinstance(used, K6) and k6_out:
        used = replace(used, out=k6_out)
        keep = used.left
        notes += (f"{K6_ROWS_NOTE} ({k6_out})",) if k6_out != "summary" else ()
    return ChosenGenerator(used, installed.path, installed.version, point.generator if reason else None, notes, keep)


def refuse_loads(
    points: Sequence[LoadPoint], chosen: Mapping[str, ChosenGenerator], endpoints: Mapping[str, Mapping[str, Endpoint]]
) -> None:
    """Raise an error if the generator of a load cannot make this load on a variant, because of the variant's hosts or TLS.

    Args:
        points: The load points.
        chosen: Name of a load point → its generator.
        endpoints: Variant → name of a load point → where the load is sent.

    Raises:
        UsageError: A generator cannot make a load.

    """
    for variant, by_point in endpoints.items():
        for point in points:
            used = chosen[point.name].generator
            if refusal := generators.refuse_point(used, point, by_point[point.name]):
                fault = f"{used.name} cannot make this load on '{variant}': {refusal}"
                raise UsageError(f"point {point.name}", fault, "choose another sweep, or measure the others without it")


def generator_record(used: ChosenGenerator) -> dict[str, str | None]:
    """Return a load generator in the form of run.json: its name, its version, and the generator that it replaces (None: none).

    For k6 there is also the form of its own output, if this is stored.
    """
    return {
        "name": used.generator.name,
        "version": used.version,
        "stand_in_for": used.stand_in_for,
    } | ({K6_OUT: used.generator.out} if isinstance(used.generator, K6) and used.generator.out else {})
