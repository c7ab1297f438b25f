"""The request to measure variants, as the command line states it, and the loading of the sweep and the variants that it names.

No function of this module uses a target.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.base.errors import UsageError, did_you_mean, refuse_if, refuse_unknown
from lab.generators.k6 import Out
from lab.model.metrics import RATIOS
from lab.model.names import EQUIVALENCE_MARGIN
from lab.model.sweeps import DEFAULT_SWEEP, LoadPoint, Sweep, find_control
from lab.model.traffic import FIXTURE
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant, reference_name
from lab.records.sweep_files import load_sweep

RESOLVE = "--resolve"
UPLOADS = "answers"
"""The fixture whose backend takes uploads of any size."""
EVENTS, WEBSOCKET, GRPC = "events", "websocket", "grpc"
"""The fixtures whose backends send streams of events, send messages of WebSockets back, and answer gRPC calls."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """The effect that a run must be able to detect, as in `--resolve 5%,p99`.

    Attributes:
        effect: The effect as a fraction: `5%` is 0.05.
        metric: The name of the metric; None: the primary metric of each variant.

    """

    effect: float
    metric: str | None = None

    def __str__(self) -> str:
        return f"{100 * self.effect:g}%" + (f",{self.metric}" if self.metric else "")


def parse_resolve(text: str) -> Resolve:
    """Parse the value of the option `--resolve`: a percentage and optionally a metric, such as `5%` or `2.5 %,rate`.

    The sign `%` may be left out if the number is 1 or more: `5` is 5 %.

    Raises:
        UsageError: The text has another form, the percentage is not in (0, 100], or the metric is unknown.

    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+) ?(%?)(?:,(.+))?", text.strip(), re.ASCII)
    if not match or (not match[2] and 0 < float(match[1]) < 1):  # is 0.05 a share or a percentage?
        raise UsageError(RESOLVE, f'expected a percentage, got "{text}"', "as in --resolve 5% or --resolve 5%,rate")
    percent, metric = float(match[1]), match[3]
    if not 0 < percent <= 100:
        raise UsageError(RESOLVE, f"expected more than 0% and at most 100%, got {match[1]}%", "as in --resolve 5%")
    if metric is not None and metric not in RATIOS:
        raise UsageError(RESOLVE, f"unknown metric '{metric}'", did_you_mean(metric, RATIOS))
    return Resolve(percent / 100, metric)


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """A request to measure variants, as the command line states it: which variants, at which loads, and how."""

    variants: tuple[str, ...]
    """The names of the variants to measure."""
    sweep: str | None = None
    """The name of the sweep.

    None stands for the one that the variants' hypotheses name, if it has a disruption, and else for DEFAULT_SWEEP.
    """
    blocks: int | None = None
    """The number of blocks; None for that of the sweep, or for the number that `resolve` needs."""
    seed: int | None = None
    """The seed of the randomized order; None for a random seed."""
    label: str | None = None
    """The name of the run; None for the names of its variants."""
    study: str | None = None
    """The key of the study that the variants belong to, for the record."""
    manifests: Path | None = None
    """A folder of manifests in place of the checkout's, within the runs folder, so that the run can be resumed."""
    k6_out: Out | None = None
    """The output of k6 to keep with the samples."""
    resolve: Resolve | None = None
    """The effect that determines the number of blocks."""
    nulls: int | None = None
    """The number of A/A pairs to add to the first; None where the variants are compared with their baselines."""
    against: tuple[str, ...] = ()
    """The variants to compare with: one for all, or one for each; empty for the variants' baselines."""
    primary: str | None = None
    """The primary metric with `against`; None for the variants' own, or CPU per request where they have none."""
    margin: float = EQUIVALENCE_MARGIN
    """The equivalence margin, as a fraction."""
    sustained: bool = False
    """Whether every sample is long enough (180 s or more) to show what runs out over minutes, such as local ports.

    Loads that end after a number of requests, or have a disruption, stay as they are.
    """
    knee: str | None = None
    """The knee (highest rate within the latency bound) that rates of the sweep are fractions of: a run, or a rate.

    The run is a search for the knee (`just knee`). None where no rate of the sweep depends on a knee.
    """
    made: Sweep | None = None
    """The sweep itself, named by `sweep`, where it was made for this request instead of read from a file."""
    only: tuple[str, ...] = ()
    """The names of the points to measure, to which control runs are added; empty for the whole sweep."""


@dataclass(frozen=True, slots=True)
class LoadedRequest:
    """A bench request after its files were read, with the load points of its sweep and the rendered variants."""

    request: BenchRequest
    """The request with the present names of all variants."""
    manifests: Path
    sweep_name: str
    sweep: Sweep
    points: tuple[LoadPoint, ...]
    asked: Mapping[str, Variant]
    """The requested variants by name, in the order of the request."""
    against: Mapping[str, str | None]
    """The variant that each requested variant is compared with; None for no comparison."""
    variants: Mapping[str, Variant]
    """The requested variants, the variants that they are compared with, and the direct reference, by name."""
    reference: str | None
    """The name of the direct reference (the backend without a proxy); None if all points are disrupted, or if some use TLS."""

    @property
    def baselines(self) -> dict[str, str]:
        """The baseline of each requested variant: variant → baseline.

        A variant without a baseline is its own baseline. In an A/A run, which compares variants with themselves, this holds for every
        variant.
        """
        itself = self.request.nulls is not None
        return {name: name if itself else base or name for name, base in self.against.items()}


def load_request(request: BenchRequest) -> LoadedRequest:
    """Read the sweep (a list of load points) of a request, and render the manifests of its variants and their baselines.

    Raises:
        UsageError: The request cannot be carried out; the error is the first fault. For example, systems as shipped and systems
            that are configured for equal work must not be in one request.

    """
    manifests = request.manifests or MANIFESTS
    name = _choose_sweep(request.variants, manifests) if request.sweep is None else request.sweep
    name, sweep = load_sweep(name) if request.made is None else (name, request.made)
    points = tuple(sweep.load_points)
    for only in request.only:
        refuse_unknown(only, [point.name for point in points], "--points", f"the sweep has no point '{only}'")
    controls = {
        control.name for point in points if point.name in request.only and (control := find_control(points, point))
    }
    points = tuple(point for point in points if not request.only or point.name in {*request.only, *controls})
    if request.sustained:
        points = tuple(point.for_minutes() for point in points)
        if not any(point.sustained for point in points):
            fault = f"no load of '{name}' lasts by time without a disturbance, so that none can be made longer"
            raise UsageError("--sustained", fault, "leave it out, or name another by --sweep")
    if sweep.itself and request.against:
        raise UsageError(
            "--sweep", f"'{name}' compares each variant with itself only", "name another, or leave --against out"
        )
    fixtures = fixtures_of(points)
    loaded = {name: load_variant(name, manifests, fixtures) for name in (*request.variants, *request.against)}
    requested = {loaded[name].name: loaded[name] for name in request.variants}
    against = tuple(loaded[name].name for name in request.against)
    request = replace(request, variants=tuple(loaded[name].name for name in request.variants), against=against)
    defaults = {name: None if sweep.itself else variant.compared_with for name, variant in requested.items()}
    pairs = zip(request.variants, against if len(against) != 1 else against * len(request.variants), strict=False)
    compared = defaults | dict(pairs)
    if twice := next((name for name, base in compared.items() if base == name), None):
        remedy = "name another; `just aa` has a variant against itself"
        raise UsageError("--against", f"'{twice}' is what it would be compared with", remedy)
    steady = any(point.disturbance is None for point in points)
    encrypted = any(point.tls not in ("none", "routed") for point in points)  # the backend itself has no TLS
    reference = reference_name(manifests) if steady and not encrypted else None
    baselines = [] if request.nulls is not None else compared.values()
    by_name = {variant.name: variant for variant in loaded.values()}
    needed = dict.fromkeys(name for name in (*requested, *baselines, reference) if name)
    variants = {name: by_name.get(name) or load_variant(name, manifests, fixtures) for name in needed}
    families = {variant.family: variant.name for variant in variants.values() if variant.name != reference}
    message = ", ".join(f"'{name}' is of the family '{family}'" for family, name in families.items())
    remedy = "measure each family separately (--against names a baseline of the same one)"
    refuse_if(len(families) > 1, "bench", f"{message}: they never stand in one table", remedy)
    return LoadedRequest(request, manifests, name, sweep, points, requested, compared, variants, reference)


def fixtures_of(points: Sequence[LoadPoint]) -> tuple[str, ...]:
    """Return the names of the fixtures that load points need: components of manifests/fixtures that are added to every variant.

    Disruptions, mixes of requests, uploads, streams of events, WebSockets and gRPC calls need them, for example another backend.
    """
    fixtures = [name for point in points if point.disturbance is not None for name in point.disturbance.fixtures]
    fixtures += [FIXTURE for point in points if point.traffic is not None]
    fixtures += [UPLOADS for point in points if point.transfer == "upload"]
    fixtures += [WEBSOCKET if point.websocket else EVENTS for point in points if point.every_s is not None]
    fixtures += [GRPC for point in points if point.grpc]
    return tuple(dict.fromkeys(fixtures))


def _choose_sweep(variants: Sequence[str], manifests: Path) -> str:
    """Return the name of the sweep (list of load points) for a request that names no sweep.

    It is the sweep that the variants' hypotheses name, if this has a disruption, streams or gRPC calls, as another load would
    not show the effect. Otherwise it is DEFAULT_SWEEP.

    Raises:
        UsageError: The hypotheses name several sweeps.

    """
    sweeps = {sweep: name for name in variants if (sweep := load_variant(name, manifests).sweep) is not None}
    if not any(point.has_outcome or point.grpc for sweep in sweeps for point in load_sweep(sweep)[1].load_points):
        return DEFAULT_SWEEP
    choices = ", ".join(f"{name} {sweep}" for sweep, name in sweeps.items())
    refuse_if(len(sweeps) > 1, "bench", f"each of these has a sweep of its own: {choices}", "name one by --sweep")
    return next(iter(sweeps))
