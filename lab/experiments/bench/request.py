"""What was asked for, and the files that it names: the sweep, the variants, what they are compared with. Knows no target yet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.base.errors import UsageError, did_you_mean, refuse_unknown
from lab.generators.k6 import Out
from lab.model.metrics import RATIOS
from lab.model.names import WORTH
from lab.model.sweeps import DEFAULT_SWEEP, Point, Sweep, control_of
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant, reference_name
from lab.records.sweep_files import load_sweep

RESOLVE = "--resolve"


@dataclass(frozen=True, slots=True)
class Resolve:
    """`5%,p99`: an effect as a fraction (0.05), and the metric, None for each variant's own primary one."""

    effect: float
    metric: str | None = None

    def __str__(self) -> str:
        return f"{100 * self.effect:g}%" + (f",{self.metric}" if self.metric else "")


def parse_resolve(text: str) -> Resolve:
    """As the command line has it: `5%`, `2.5 %,rate`; a bare number from 1 on is per cent, too. UsageError for what is neither more than 0 % nor at most 100 %."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+) ?(%?)(?:,(.+))?", text.strip(), re.ASCII)
    if not found or (not found[2] and 0 < float(found[1]) < 1):  # 0.05: a share, or per cent?
        raise UsageError(RESOLVE, f'expected a percentage, got "{text}"', "as in --resolve 5% or --resolve 5%,rate")
    percent, metric = float(found[1]), found[3]
    if not 0 < percent <= 100:
        raise UsageError(RESOLVE, f"expected more than 0% and at most 100%, got {found[1]}%", "as in --resolve 5%")
    if metric is not None and metric not in RATIOS:
        raise UsageError(RESOLVE, f"unknown metric '{metric}'", did_you_mean(metric, RATIOS))
    return Resolve(percent / 100, metric)


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
    against: tuple[str, ...] = ()
    """What the variants are compared with instead of their baselines: one for all, or one for each; empty = their baselines."""
    primary: str | None = None
    """The metric that may claim instead of the variants' own; where that is none, it is CPU per request beside `against`."""
    worth: float = WORTH
    """The share from which on an effect is worth knowing."""
    sustained: bool = False
    """Make the samples of every load that lasts by time as long as shows what runs out over minutes."""
    knee: str | None = None
    """Of a sweep whose points are placed at a knee: which one, a run or a rate."""
    only: tuple[str, ...] = ()
    """Names of the points that are measured, with the control runs of disturbed ones; empty = all of the sweep."""


@dataclass(frozen=True, slots=True)
class LoadedRequest:
    """A request with its files read."""

    request: Request
    """With the present names of all variants."""
    manifests: Path
    sweep_name: str
    sweep: Sweep
    points: tuple[Point, ...]
    asked: Mapping[str, Variant]
    """By name, in the order asked for."""
    against: Mapping[str, str | None]
    """Variant that was asked for → what it is compared with; None = with nothing."""
    variants: Mapping[str, Variant]
    """Those asked for, what they are compared with, and the direct reference."""
    reference: str | None
    """None: all loads are disturbed, and there is nothing in it to disturb."""

    @property
    def baselines(self) -> dict[str, str]:
        """Variant that was asked for → what it is compared with: itself where it has no baseline, or as a null."""
        itself = self.request.nulls is not None
        return {name: name if itself else base or name for name, base in self.against.items()}


def load(request: Request) -> LoadedRequest:
    """Read the sweep and render the variants. UsageError on the first fault.

    Systems as they are shipped and some that were made to do the same work never stand in one table.
    """
    manifests = request.manifests or MANIFESTS
    name, sweep = load_sweep(_own_sweep(request.variants, manifests) if request.sweep is None else request.sweep)
    points = tuple(sweep.expanded())
    for only in request.only:
        refuse_unknown(only, [point.name for point in points], "--points", f"the sweep has no point '{only}'")
    controls = {
        control.name for point in points if point.name in request.only and (control := control_of(points, point))
    }
    points = tuple(point for point in points if not request.only or point.name in {*request.only, *controls})
    if request.sustained:
        points = tuple(point.for_minutes() for point in points)
        if not any(point.sustained for point in points):
            fault = f"no load of '{name}' lasts by time without a disturbance, so that none can be made longer"
            raise UsageError("--sustained", fault, "leave it out, or name another by --sweep")
    if sweep.itself and request.against:
        raise UsageError(
            "--sweep", f"'{name}' has each variant beside its twin alone", "name another, or leave --against out"
        )
    fixtures = fixtures_of(points)
    read = {variant: load_variant(variant, manifests, fixtures) for variant in (*request.variants, *request.against)}
    asked = {read[each].name: read[each] for each in request.variants}
    named = tuple(read[each].name for each in request.against)
    request = replace(request, variants=tuple(read[each].name for each in request.variants), against=named)
    own = {each: None if sweep.itself else variant.compared_with for each, variant in asked.items()}
    of_each = zip(request.variants, named if len(named) != 1 else named * len(request.variants), strict=False)
    compared = own | dict(of_each)
    if twice := next((each for each, base in compared.items() if base == each), None):
        remedy = "name another; `just aa` has a variant against itself"
        raise UsageError("--against", f"'{twice}' is what it would be compared with", remedy)
    steady = any(point.disturbance is None for point in points)
    encrypted = any(point.tls not in ("none", "routed") for point in points)  # which the backend itself does not speak
    reference = reference_name(manifests) if steady and not encrypted else None
    baselines = [] if request.nulls is not None else compared.values()
    known = {variant.name: variant for variant in read.values()}
    needed = dict.fromkeys(each for each in (*asked, *baselines, reference) if each)
    variants = {each: known.get(each) or load_variant(each, manifests, fixtures) for each in needed}
    families = {each.family: each.name for each in variants.values() if each.name != reference}
    if len(families) > 1:
        said = ", ".join(f"'{name}' is of the family '{family}'" for family, name in families.items())
        remedy = "measure each family by itself (--against names a baseline of the same one)"
        raise UsageError("bench", f"{said}: they never stand in one table", remedy)
    return LoadedRequest(request, manifests, name, sweep, points, asked, compared, variants, reference)


def fixtures_of(points: Sequence[Point]) -> tuple[str, ...]:
    """What variants are laid over with for these points' disturbances."""
    wanted = [name for point in points if point.disturbance is not None for name in point.disturbance.fixtures]
    return tuple(dict.fromkeys(wanted))


def _own_sweep(variants: Sequence[str], manifests: Path) -> str:
    """What no steady load could show is measured in the sweep that its hypothesis names. UsageError when they name several."""
    named = {sweep: name for name in variants if (sweep := load_variant(name, manifests).sweep) is not None}
    if not any(point.disturbance is not None for sweep in named for point in load_sweep(sweep)[1].expanded()):
        return DEFAULT_SWEEP
    if len(named) > 1:
        wanted = ", ".join(f"{name} {sweep}" for sweep, name in named.items())
        raise UsageError("bench", f"each of these has a sweep of its own: {wanted}", "name one by --sweep")
    return next(iter(named))
