"""What can be shown on a target: its facts, the loads with their rates and generators, the variants that are left, as arms; and the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab import generators
from lab.analysis import rerun
from lab.analysis.knee.report import differs, report_of
from lab.analysis.noise import PRIMARY, aa_arms
from lab.base.errors import UsageError
from lab.base.files import runs_folder
from lab.experiments.bench.request import LoadedRequest
from lab.generators.k6 import K6, Out
from lab.measure.measurement import ChosenGenerator
from lab.model.endpoint import Endpoint
from lab.model.metrics import RATIOS
from lab.model.pairs import SIDES
from lab.model.plan import arms_for
from lab.model.run import K6_OUT, AtKnee, NotMeasured, RunRecord, VariantRecord
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant
from lab.records.store import RunStore, new_record
from lab.targets.base import Target
from lab.targets.survey import survey

K6_WROTE = "k6 wrote rows of its own beside, which cost it CPU"
CARRIED_RPS_PER_CPU = 1000.0
"""Requests per second and CPU, of both sides together, that machines which the lab itself divides carry without a probe: on two CPUs all
committed concurrent pairs at 1,000 req/s a side are valid (data/reference, local and apiserver). Clusters are always asked.
"""


class NothingMeasurableError(UsageError):
    """Nothing that was asked for can be shown here (exit 2); `missing` says why, one by one; `notes`: what else there is to tell."""

    def __init__(self, missing: Sequence[NotMeasured], notes: Sequence[str] = ()) -> None:
        self.missing = tuple(missing)
        named = "; ".join(map(str, missing))
        told = [item for item in missing if item.remedy]
        alike = len({item.remedy for item in told}) == 1
        remedies = dict.fromkeys(item.remedy if alike else f"{item.variant}: {item.remedy}" for item in told)
        remedy = "; ".join(remedies) or "name another: see `just list`"
        super().__init__("bench", f"nothing to measure: {named}", "\n  ".join([remedy, *notes]))


@dataclass(frozen=True, slots=True)
class MeasurableRun:
    """What of a request is measured on a target."""

    record: RunRecord
    """run.json as it begins: without generators, slots and design."""
    asked: Mapping[str, Variant]
    """Those asked for that are left."""
    variants: Mapping[str, Variant]
    """Of the arms."""
    endpoints: Mapping[str, Mapping[str, Endpoint]]
    """Variant → point → where its load goes."""
    to_probe: tuple[Point, ...] = ()
    """Points at a given rate that pairs are planned for, and of which nobody can say beforehand that the target carries them for two sides at once."""


def measurable(loaded: LoadedRequest, target: Target, command: Sequence[str]) -> MeasurableRun:
    """UsageError on the first fault; what cannot be shown here is left out, NothingMeasurableError if that leaves nothing.

    A variant is left out with its baseline, too.
    """
    request, against = loaded.request, loaded.against
    there = survey(target, loaded.variants.values(), loaded.points)
    points, at_knee = there.points, None
    if request.knee is not None or any(point.of_knee is not None for point in points):
        points, at_knee = placed(points, request.knee, list(dict.fromkeys(loaded.baselines.values())), target.name)
    missing = dict(there.missing)
    for name in loaded.variants:
        base = missing.get(against.get(name) or "")
        if base and name not in missing:
            why = f"its baseline {base.variant} is not measurable here: {base.why}"
            missing[name] = NotMeasured(variant=name, what=base.what, why=why, remedy=base.remedy)
    asked = {name: variant for name, variant in loaded.asked.items() if name not in missing}
    if not asked:
        raise NothingMeasurableError([missing[name] for name in loaded.asked])
    reference = None if loaded.reference in missing else loaded.reference
    if request.nulls is not None:
        arms = aa_arms(next(iter(asked)), request.nulls, reference)
    else:
        arms = arms_for([(name, against[name]) for name in asked], reference)
    variants = {arm.variant: loaded.variants[arm.variant] for arm in arms}
    record = new_record(
        request.label or "-".join(request.variants),
        loaded.sweep_name,
        target.name,
        command,
        arms,
        points,
        {name: _compared_record(loaded, name, there.unpaired) for name in variants},
        {**there.facts, **there.brought},
    )
    more = {
        "not_measurable": tuple(missing[name] for name in dict.fromkeys((*loaded.asked, *missing)) if name in missing),
        "study": request.study,
        "manifests": str(request.manifests.relative_to(runs_folder())) if request.manifests else None,
        "at_knee": at_knee,
        "worth": request.worth,
    }
    of_two, to_probe = record.variants.get(next(iter(loaded.baselines.values()))), tuple[Point, ...]()
    if len(target.sides) == len(SIDES) and of_two is not None and not of_two.unpaired:
        pinned = len(frozenset[int]().union(*target.cpus().values()))
        carried_rps = CARRIED_RPS_PER_CPU * pinned / len(SIDES)
        to_probe = tuple(
            point
            for point in points
            if point.rate_rps is not None
            and not (point.why_alone or point.disturbance or (pinned and point.rate_rps <= carried_rps))
        )
    return MeasurableRun(record.model_copy(update=more), asked, variants, there.endpoints, to_probe)


def _compared_record(loaded: LoadedRequest, name: str, unpaired: Mapping[str, str]) -> VariantRecord:
    """What a run keeps of a variant beside what it is compared with there. `unpaired`: variant → why no other can be up beside it, or empty.

    A variant that is compared with itself adds nothing, there is nothing to apply, and any load shows that. One that is compared with
    another than its baseline is held against it as against another system: there is nothing to apply either. What a variant was alone
    leads where the cost of what tells it from that other one can lie in what a pair shares, or where one of the two bears no pair here.
    """
    request, variant = loaded.request, loaded.variants[name]
    changed: dict[str, Any] = {"unpaired": unpaired[name]}
    if request.nulls is not None and name in request.variants:
        metric = variant.primary_metric if variant.primary_metric in RATIOS else PRIMARY
        changed |= {"baseline": name, "own_knobs": (), "primary_metric": metric, "hypothesis_sweep": None}
        changed |= {"snippet": "", "needs": "", "shared_cost": False}
    elif unpaired[name] or unpaired.get(loaded.against.get(name) or ""):
        changed["shared_cost"] = True
    if request.against and (other := loaded.against.get(name)) is not None:
        base = loaded.variants[other]
        changed |= {"baseline": other, "primary_metric": request.primary or variant.primary_metric or PRIMARY}
        changed |= {} if other == variant.compared_with else {"snippet": "", "own_knobs": ()}
        mine, theirs = ({knob.name: knob for knob in each.knobs} for each in (variant, base))
        apart = any((mine | theirs)[knob].cost == "shared" for knob in mine.keys() ^ theirs.keys())
        changed.setdefault("shared_cost", variant.root_cost != base.root_cost or apart)
    return VariantRecord.of(variant, loaded.manifests, **changed)


# -- at which knee a sweep's loads are placed, that an earlier search (`just knee`) found ---------------------------


def placed(
    points: Sequence[Point], knee: str | None, baselines: Sequence[str], target: str
) -> tuple[tuple[Point, ...], AtKnee]:
    """The points with their rates, and the knee they were placed at. UsageError where it will not do, or no point asks for one.

    All arms of a run are measured at the same absolute rates, those of their baseline's knee: the question is which of them answers
    faster at one load. `knee`: the name of a search's run, of the same load and target; or a rate.
    """
    wanted = [point for point in points if point.of_knee is not None]
    if not wanted:
        raise UsageError("--knee", "no load of this sweep is placed at a knee", "leave it out, or --sweep at-knee")
    search = f"find it with `just knee {baselines[0]}{rerun.place(target)}{_options(wanted[0])}`"
    if knee is None:
        fault = "this sweep's loads are placed at a knee, and none is named"
        raise UsageError("--knee", fault, f"{search}, or name a rate: --knee 2000")
    try:
        rate_rps = float(knee.replace(",", ""))
    except ValueError:
        found = _of_run(RunStore.open(knee), wanted, baselines, target, search)
    else:
        if not 1 <= rate_rps <= 10_000_000:
            fault = f"expected 1 to 10,000,000 requests per second, got {knee}"
            raise UsageError("--knee", fault, "name a rate or a run")
        found = AtKnee(rate_rps=rate_rps, run=None, variant=None)
    return tuple(point.at_rate(found.rate_rps) for point in points), found


def _of_run(run: RunStore, wanted: Sequence[Point], baselines: Sequence[str], target: str, search: str) -> AtKnee:
    record = run.record
    if record.knee is None:
        raise UsageError("--knee", f"run {record.id} is no search for a knee", search)
    if record.target != target:
        raise UsageError("--knee", f"the knee of {record.id} is of target '{record.target}', not '{target}'", search)
    if other := differs(record.points[0], wanted):
        raise UsageError("--knee", f"the knee of {record.id} is of another load: {other}", search)
    knees = {knee.variant: knee for knee in report_of(run).knees}
    variant = next((name for name in (*baselines, *(knees if len(knees) == 1 else ())) if name in knees), None)
    if variant is None:
        fault = f"run {record.id} has no knee of {', '.join(baselines)}, only of {', '.join(knees)}"
        raise UsageError("--knee", fault, "name a rate instead")
    found = knees[variant]
    if found.rate_rps is None:
        raise UsageError("--knee", f"run {record.id} found no knee: {found.why}", "name another run, or a rate")
    return AtKnee(rate_rps=found.rate_rps, run=record.id, variant=variant, at_least=found.at_least)


def _options(point: Point) -> str:
    """Of the command that finds the knee of this load, as far as a search can be asked for it."""
    options = f" --connections {point.connections}" if point.connections != 100 else ""
    options += f" --page {point.page}" if point.page != "1kB.bin" else ""
    options += f" --tls {point.tls}" if point.tls != "routed" else ""
    options += f" --accept-encoding {point.accept_encoding}" if point.accept_encoding != "identity" else ""
    return options + ("" if point.keepalive else " --close")


# -- which generator makes each point's load, and whether it can, on every variant -----------------------------


def choose(point: Point, target: Target, k6_out: Out | None = None) -> ChosenGenerator:
    """The generator for a point as the target has it, or the one that stands in for it; k6 leaves `k6_out` of its own.

    Of the system only what the point says is known before it is up: `all` routes are more than one.
    """
    routes = max(2, point.connections) if point.routes == "all" else point.routes
    hosts = tuple(f"r{number}.lab.test" for number in range(routes))
    secure = "http" if point.tls in ("none", "routed") else "https"
    placeholder = Endpoint(f"{secure}://{hosts[0]}", hosts[0], hosts, "none" if point.tls == "routed" else point.tls)
    load = generators.load_of(point, placeholder)
    used, installed, why = generators.choose(point.generator, load, target.installed)
    notes = () if why is None else (why,)
    keep: tuple[str, ...] = ()
    if isinstance(used, K6) and k6_out:
        used = replace(used, out=k6_out)
        keep = used.left
        notes += (f"{K6_WROTE} ({k6_out})",) if k6_out != "summary" else ()
    return ChosenGenerator(used, installed.path, installed.version, point.generator if why else None, notes, keep)


def refuse_loads(
    points: Sequence[Point], chosen: Mapping[str, ChosenGenerator], endpoints: Mapping[str, Mapping[str, Endpoint]]
) -> None:
    """UsageError for a load that its generator cannot make on one of these variants' hosts, or where its TLS ends."""
    for variant, ends in endpoints.items():
        for point in points:
            used = chosen[point.name].generator
            if refusal := generators.refusal_of(used, point, ends[point.name]):
                fault = f"{used.name} cannot make this load on '{variant}': {refusal}"
                raise UsageError(f"point {point.name}", fault, "choose another sweep, or measure the others without it")


def generator_record(used: ChosenGenerator) -> dict[str, str | None]:
    """As run.json has a point's."""
    return {
        "name": used.generator.name,
        "version": used.version,
        "stand_in_for": used.stand_in_for,
    } | ({K6_OUT: used.generator.out} if isinstance(used.generator, K6) and used.generator.out else {})
