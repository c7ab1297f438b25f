"""Which knee a sweep's loads are placed at, and the loads at it. Reads earlier searches (`just knee`), measures nothing.

All arms of a run are measured at the same absolute rates, those of their baseline's knee: the question is which of them answers
faster at one load. Refuses a knee of another load or target, or, unless it is named, of other facts or manifests; and to guess where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.analysis import rerun
from lab.analysis.knee.report import differs, report_of
from lab.base.errors import LabError, UsageError
from lab.model.facts import differing
from lab.model.run import AtKnee
from lab.model.sweeps import Point
from lab.records.store import RunStore, run_names


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run is about to be measured. `baselines`: what its variants are compared with."""

    baselines: tuple[str, ...]
    target: str
    facts: Mapping[str, str]
    manifests: Mapping[str, str] = field(default_factory=dict[str, str])
    """Baseline → the digest of its manifests, as run.json has it; one that is not here is not compared."""


def placed(points: Sequence[Point], knee: str | None, place: Place) -> tuple[tuple[Point, ...], AtKnee]:
    """The points with their rates, and the knee they were placed at.

    `knee`: a run's name or a rate; None = the latest search that fits. UsageError when there is none, or no point asks for one.
    """
    wanted = [point for point in points if point.of_knee is not None]
    if not wanted:
        raise UsageError("--knee", "no load of this sweep is placed at a knee", "leave it out, or --sweep at-knee")
    found = _named(knee, place, wanted) if knee is not None else _latest(place, wanted)
    return tuple(point.at_rate(found.rate_rps) for point in points), found


def _named(knee: str, place: Place, wanted: Sequence[Point]) -> AtKnee:
    try:
        rate_rps = float(knee.replace(",", ""))
    except ValueError:
        return _of_run(knee, place, wanted)
    if not 1 <= rate_rps <= 10_000_000:
        raise UsageError("--knee", f"expected 1 to 10,000,000 requests per second, got {knee}", "name a rate or a run")
    return AtKnee(rate_rps=rate_rps, run=None, variant=None)


def _of_run(name: str, place: Place, wanted: Sequence[Point]) -> AtKnee:
    run = RunStore.open(name)
    if run.record.knee is None:
        raise UsageError("--knee", f"run {run.record.id} is no search for a knee", _search(place, wanted))
    if run.record.target != place.target:
        fault = f"the knee of {run.record.id} is of target '{run.record.target}', not '{place.target}'"
        raise UsageError("--knee", fault, _search(place, wanted))
    if other := differs(run.record.points[0], wanted):
        raise UsageError("--knee", f"the knee of {run.record.id} is of another load: {other}", _search(place, wanted))
    knees = {knee.variant: knee for knee in report_of(run).knees}
    only = next(iter(knees)) if len(knees) == 1 else None
    variant = next((name for name in place.baselines if name in knees), only)
    if variant is None:
        fault = f"run {run.record.id} has no knee of {', '.join(place.baselines)}, only of {', '.join(knees)}"
        raise UsageError("--knee", fault, "name a rate instead")
    found = knees[variant]
    if found.rate_rps is None:
        raise UsageError("--knee", f"run {run.record.id} found no knee: {found.why}", "name another run, or a rate")
    return AtKnee(rate_rps=found.rate_rps, run=run.record.id, variant=variant, at_least=found.at_least)


def _latest(place: Place, wanted: Sequence[Point]) -> AtKnee:
    """Of the baseline as it is now, here, under the same facts but for the boot, at the same load."""
    if len(place.baselines) > 1:
        fault = f"these variants have several baselines ({', '.join(place.baselines)}), each with a knee of its own"
        raise UsageError("--knee", fault, "name the one to measure at: --knee RUN or --knee RATE")
    baseline = next(iter(place.baselines))
    others: list[str] = []
    for name in reversed(run_names()):
        try:
            run = RunStore.open(name)
            record = run.record
            if record.knee is None or record.target != place.target or all(a.variant != baseline for a in record.arms):
                continue
            then = record.variants[baseline].manifests_sha256
            if differing(record.facts, place.facts):
                others.append(f"{name}: under other facts")
            elif then != place.manifests.get(baseline, then):
                others.append(f"{name}: of other manifests of '{baseline}'")
            elif other := differs(record.points[0], wanted):
                others.append(f"{name}: of another load: {other}")
            else:
                found = next(knee for knee in report_of(run).knees if knee.variant == baseline)
                if found.rate_rps is not None:
                    at_least = found.at_least
                    return AtKnee(rate_rps=found.rate_rps, run=record.id, variant=baseline, at_least=at_least)
                others.append(f"{name}: {found.why}")
        except LabError:
            continue  # a damaged run is no guide; it is reported when it is asked for
    seen = f" ({others[0]}; name it by --knee if it will do)" if others else ""
    raise UsageError("--knee", f"nobody has found the knee of '{baseline}' here{seen}", _search(place, wanted))


def _search(place: Place, wanted: Sequence[Point]) -> str:
    """The command that finds the knee of this load, as far as a search can be asked for it."""
    point = wanted[0]
    options = [rerun.place(place.target)]
    options += [f" --connections {point.connections}"] if point.connections != 100 else []
    options += [f" --page {point.page}"] if point.page != "1kB.bin" else []
    options += [f" --tls {point.tls}"] if point.tls != "routed" else []
    options += [f" --accept-encoding {point.accept_encoding}"] if point.accept_encoding != "identity" else []
    options += [] if point.keepalive else [" --close"]
    return f"find it with `just knee {place.baselines[0]}{''.join(options)}`, or name a rate: --knee 2000"
