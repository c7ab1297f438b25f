"""The lessons of earlier runs for one about to start: noise, how long bring-ups take, which loads need a fresh one.

Runs under the same conditions (target, loads, generators, facts) are pooled. Without any, the committed standard
deviations of pairs elsewhere are used (`list_committed_noise`). A damaged run is not used, nor one with too few blocks.

A load that leaves so many local ports waiting that the next start cannot be drained needs a fresh bring-up after it. If a
sample recorded what loads leave, that decides. In older samples the connections that the proxy opened stand in for
TIME_WAIT sockets: each waits 60 s, if the proxy closes it. An older sample cannot show which side closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise, product
from statistics import median

from lab.analysis import levels
from lab.analysis.judge.rulings import choose_metric, list_committed_noise
from lab.analysis.noise import Noise, list_aa_variants, measure_noise, pool_deviations
from lab.analysis.summary import Summary, list_null_arms, summarise_run
from lab.base.errors import LabError
from lab.base.files import read_text_if_readable, reference_folder, runs_folder
from lab.model.design import PlannedAnew
from lab.model.facts import list_differences
from lab.model.leftovers import DEFAULT_PORTS, OPENED, PORT_SHARE, find_taken_ports
from lab.model.pairs import Scheme
from lab.model.plan import Plan, Slot
from lab.model.run import RunRecord
from lab.model.samples import Sample, list_bring_ups_s
from lab.model.sweeps import LoadPoint
from lab.model.variants.naming import list_spellings
from lab.records.store import RunStore, run_names
from lab.records.tables import RUN
from lab.stats import paired as stats

POOLED = 10
"""The number of earlier runs whose noise is pooled."""
ONE_CONNECTION_PER_REQUEST = 0.95
"""The connections opened per request beyond which an older sample does not show who closes them.

Each request has a connection for itself then, and many backends close those. Below it a proxy keeps some connections and
closes those that its pool does not take.
"""
LEAST_SAMPLES = 2
"""The least number of samples of a load that show that it leaves too much."""
MAY_DIFFER = (
    "connections",
    "threads",
    "duration_s",
    "warmup_s",
    "subject",
    "generations",
    "repeats",
    "attempts",
    "singly",
)
"""The keys of a point that may differ from the known load's.

More connections leave more, and the other keys do not affect what a load leaves.
"""
VariantLoad = tuple[str, LoadPoint]
"""A variant and a load on it, the load without its name."""
Schemes = Mapping[str, Scheme | None]
"""A mapping of point → the kind of pair that gives an effect there; None: solo samples give it."""
OF_A_BASELINE = ("rate", "cpu_per_request", "p99")
"""The metrics that are forecast if no variant has a primary metric."""


@dataclass(frozen=True, slots=True)
class Past:
    """The lessons of earlier runs.

    Attributes:
        runs: Their ids, the newest first.
        bring_up_s: The median seconds of a bring-up in the newest; None: not known.
        noises: The noise of each variant, point and metric.
        manifests: Variant → the digest of its manifests in the newest.
        only_aa: Whether the newest compared only a variant with itself.

    """

    runs: tuple[str, ...]
    bring_up_s: float | None
    noises: tuple[Noise, ...]
    manifests: Mapping[str, str]
    only_aa: bool = False

    @property
    def id(self) -> str:
        """The id of the newest run."""
        return self.runs[0]

    @property
    def source(self) -> str:
        """The runs that the lessons are from, for people."""
        older = f" and {len(self.runs) - 1} more" if len(self.runs) > 1 else ""
        return f"from the {'A/A run' if self.only_aa else 'pairs of'} {self.id}{older}"

    def of(self, baseline: str) -> list[Noise]:
        """Return the noise of one variant, judged or not."""
        return [noise for noise in self.noises if noise.variant == baseline]

    def covers(self, baselines: Mapping[str, str]) -> bool:
        """Return whether noise of each baseline (name → digest of its manifests) is known with these manifests."""
        complete = all(any(not noise.why for noise in self.of(name)) for name in baselines)
        return complete and all(self.manifests.get(name) == digest for name, digest in baselines.items())


def find_past_runs(record: RunRecord) -> Iterator[Past]:
    """Yield the lessons of each other run under a run's conditions that has enough blocks, the newest first.

    The conditions are target, loads, generators, and facts except the boot.
    """
    conditions = record.target, record.points, record.generators
    for name in reversed(run_names()):
        with suppress(LabError):  # a damaged run is not used; it is reported when the user opens it
            run = RunStore.open(name)
            old = run.record
            alike = (old.target, old.points, old.generators) == conditions and old.blocks >= stats.MIN_BLOCKS
            if (
                name != record.id
                and alike
                and not list_differences(record.facts, old.facts)
                and (samples := run.samples())
            ):
                yield past_of(old, samples, summarise_run(old, samples, run.histogram))


def past_of(record: RunRecord, samples: Sequence[Sample], summary: Summary) -> Past:
    """Return the lessons of one run."""
    durations = list_bring_ups_s(samples)
    nulls, variants = list_null_arms(record.arms), [arm for arm in record.arms if arm.role == "variant"]
    only_aa = bool(nulls) and len(nulls) == len(variants)
    digests = {name: variant.manifests_sha256 for name, variant in record.variants.items()}
    return Past((record.id,), median(durations) if durations else None, measure_noise(summary), digests, only_aa)


def best_past(record: RunRecord) -> Past | None:
    """Return the best lessons for a run.

    They are all those pooled that cover the noise of its baselines with the present manifests; else the newest that know
    any noise; else the newest.
    """
    baselines = {name: record.variants[name].manifests_sha256 for name in list_aa_variants(record.arms)}
    newest = list(islice(find_past_runs(record), POOLED))
    with_noise = (past for past in newest if any(not noise.why for noise in past.noises))
    covering = [past for past in newest if past.covers(baselines)]
    return pool_pasts(covering) if covering else next(with_noise, next(iter(newest), None))


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast for a run that is about to start.

    Attributes:
        past: The lessons of earlier runs; None without any.
        fresh: The bring-ups that its loads make certain.
        duration_s: How many seconds it takes.

    """

    past: Past | None
    fresh: PlannedAnew
    duration_s: float


def forecast(record: RunRecord, bring_up_s: float, past: Past | None = None) -> Forecast:
    """Forecast a run.

    Args:
        record: The record of the run.
        bring_up_s: The seconds of one bring-up, if no earlier run shows it.
        past: The earlier runs to use; None: the best ones.

    """
    planned, past = record.plan(), past or best_past(record)
    if past is not None and past.bring_up_s is not None:
        bring_up_s = past.bring_up_s
    fresh = find_fresh_bring_ups(planned, record.target)
    return Forecast(past, fresh, planned.lasts_s(bring_up_s) + fresh.count * bring_up_s)


def pool_pasts(pasts: Sequence[Past]) -> Past:
    """Return the newest of several lessons, with the noise of all pooled."""
    groups: dict[tuple[str, str, str, Scheme | None], list[Noise]] = {}
    for noise in (noise for past in pasts for noise in past.noises if not noise.why or past is pasts[0]):
        groups.setdefault((noise.variant, noise.point, noise.metric, noise.scheme), []).append(noise)
    merged: list[Noise] = []
    for first, *older in groups.values():
        sd, degrees = pool_deviations([(noise.sd, noise.pilot_blocks - 1) for noise in (first, *older)])
        merged.append(replace(first, sd=sd, pilot_blocks=degrees + 1))
    return replace(pasts[0], noises=tuple(merged), runs=tuple(run for past in pasts for run in past.runs))


def select_judged_noise(
    noise: Sequence[Noise],
    points: Sequence[LoadPoint],
    metric: str | None,
    asked: bool = False,
    schemes: Schemes | None = None,
) -> list[Noise]:
    """Return the noise of the metric that carries an effect at each point, where it is judged.

    Args:
        noise: The noise of one variant.
        points: The points of the sweep.
        metric: The primary metric; None: OF_A_BASELINE.
        asked: Whether to use exactly this metric, whatever carries it at a point.
        schemes: Point → the kind of pair that gives the effect there; None: any.

    """
    judged: list[Noise] = []
    for point in points:
        fitting = [candidate for candidate in noise if candidate.point == point.name]
        if schemes is not None:
            fitting = [candidate for candidate in fitting if candidate.scheme == schemes[point.name]]
        by_metric = {candidate.metric: candidate for candidate in fitting}
        reasons = {name: candidate.why for name, candidate in by_metric.items() if candidate.why}
        given = (metric,) if asked and metric else None
        metrics = given or (OF_A_BASELINE if metric is None else (choose_metric(metric, point, points, reasons),))
        judged += [by_metric[name] for name in metrics if name in by_metric and not by_metric[name].why]
    return judged


def select_committed_noise(target: str, variants: Iterable[str], points: Sequence[LoadPoint]) -> list[Noise]:
    """Return the committed standard deviations of pairs, as if they were of these variants at these points.

    For CPU per request in a pair it is that of this very system on this target, if its variance components are known.
    """
    noise: list[Noise] = []
    committed = list_committed_noise()
    for variant, point in product(variants, points):
        for deviation in (candidate for candidate in committed if candidate.load == point.scheme):
            sd, pilot = deviation.sd, deviation.rounds
            component = levels.find_components(target, {variant}, deviation.scheme) if deviation.scheme else None
            if component is not None and deviation.metric == "cpu_per_request":
                sd, pilot = levels.compute_sd(component, point.generations, point.duration_s, point.singly)
            noise.append(
                Noise(variant, point.name, deviation.metric, deviation.scheme, None, None, sd, pilot, None, False, 0, 0)
            )
    return noise


# -- fresh bring-ups -----------------------------------------------------------------------------------------


def share_left(sample: Sample) -> float | None:
    """Return the share of local ports that wait in TIME_WAIT after a sample's load; None if it does not show that."""
    if (end := sample.leftovers.get("end")) is not None:
        return None if end.unseen else find_taken_ports(end).share
    opened = sample.counters.get(OPENED)
    if (
        opened is None
        or not sample.requests
        or not sample.duration_s
        or opened > ONE_CONNECTION_PER_REQUEST * sample.requests
    ):
        return None
    return opened * (1 + sample.point.warmup_s / sample.duration_s) / DEFAULT_PORTS


def leaving_loads(samples: Iterable[Sample]) -> dict[VariantLoad, float]:
    """Return solo load → the least share of ports that it left waiting, for loads that always left too many.

    A load needs LEAST_SAMPLES samples or more.
    """
    shares: dict[VariantLoad, list[float | None]] = {}
    for sample in samples:
        if sample.valid and sample.pair is None and sample.point.disturbance is None:
            shares.setdefault((sample.variant, _strip_name(sample.point)), []).append(share_left(sample))
    least = {
        load: min(share or 0.0 for share in lefts) for load, lefts in shares.items() if len(lefts) >= LEAST_SAMPLES
    }
    return {load: share for load, share in least.items() if share >= PORT_SHARE}


def count_fresh_bring_ups(planned: Plan, shares: Mapping[VariantLoad, float], runs: Sequence[str] = ()) -> PlannedAnew:
    """Count the starts in a plan that cannot be drained.

    The load before them in their bring-up leaves too many ports waiting.

    Args:
        planned: The plan.
        shares: The least that loads are known to leave (`leaving_loads`).
        runs: The runs that showed it.

    """
    count, loads = 0, dict[str, None]()
    for before, after in pairwise(planned.slots):
        if before.bring_up == after.bring_up and before.point.disturbance is None:
            leaving = [
                side
                for side in before.sides
                if any(share * _find_part_left(side, load) >= PORT_SHARE for load, share in shares.items())
            ]
            count += bool(leaving)
            loads |= dict.fromkeys(f"{side.arm.variant} at {side.point.name}" for side in leaving)
    return PlannedAnew(count, tuple(loads), tuple(runs))


def find_fresh_bring_ups(planned: Plan, target: str) -> PlannedAnew:
    """Count a plan's certain fresh bring-ups by all stored runs of its variants on a target.

    They are the user's runs and the committed ones.
    """
    ups = [slot.bring_up for slot in planned.slots]
    if len(ups) == len(set(ups)):
        return PlannedAnew()
    slots = list({(slot.arm.name, slot.point.name): slot for slot in planned.slots}.values())
    shares, runs = dict[VariantLoad, float](), list[str]()
    for run in _find_runs({slot.arm.variant for slot in slots}, target):
        parts = [
            ((slot.arm.variant, point.name), _find_part_left(slot, (slot.arm.variant, _strip_name(point))))
            for point, slot in product(run.record.points, slots)
        ]
        enough = any(part >= PORT_SHARE for _, part in parts)
        alike = {place for place, part in parts if part and enough}
        with suppress(LabError):  # a damaged run is not used
            of_run = leaving_loads(run.samples(partial(_is_solo_sample, alike))) if alike else {}
            if count_fresh_bring_ups(planned, of_run).count:
                shares |= {load: min(share, shares.get(load, share)) for load, share in of_run.items()}
                runs.append(run.record.id)
    return count_fresh_bring_ups(planned, shares, runs)


def _is_solo_sample(loads: Set[tuple[str, str]], sample: Sample) -> bool:
    """Return whether a sample is of one of these variants and points, and of no pair."""
    return sample.pair is None and (sample.variant, sample.point.name) in loads


def _find_runs(variants: Set[str], target: str) -> Iterator[RunStore]:
    """Yield the stored steady runs on a target that have one of the variants.

    The text of their run.json is searched before it is parsed.
    """
    spelled = [f'"{spelling}"' for variant in variants for spelling in list_spellings(variant)]
    for folder in (runs_folder(), reference_folder()):
        for name in run_names(folder):
            text = read_text_if_readable(folder / name / RUN)
            if f'"target": "{target}"' in text and any(spelling in text for spelling in spelled):
                with suppress(LabError):
                    run = RunStore.open(str(folder / name))
                    if run.record.target == target and not any(point.disturbance for point in run.record.points):
                        yield run


def _strip_name(point: LoadPoint) -> LoadPoint:
    return point.model_copy(update={"name": ""})


def _find_part_left(slot: Slot, load: VariantLoad) -> float:
    """Return the least part that a slot's load leaves waiting of what a known load leaves.

    It is 0 if the slot's load is neither that load, nor one with more connections. A shorter load leaves at least its
    proportional part, since connections are opened fastest while ports are free. Each side of a pair has half of the time,
    or the part of the machine that the other side leaves it.
    """
    variant, known_load = load
    point = _strip_name(slot.point)
    if slot.arm.variant != variant or point.connections < known_load.connections:
        return 0.0
    if point.model_copy(update={name: getattr(known_load, name) for name in MAY_DIFFER}) != known_load:
        return 0.0
    lasts_s, known_s = (timed.duration_s + timed.warmup_s for timed in (point, known_load))
    return min(1.0, lasts_s / known_s) * (0.5 if slot.against else 1.0)
