"""The lessons of earlier runs for a run about to start: noise, the duration of starts, and loads that need a fresh start.

Runs under the same conditions (target, loads, generators, facts) are pooled. Without any, the committed standard
deviations of pairs elsewhere are used (`list_committed_noise`). Damaged runs and runs with too few blocks are not used.

A load may leave so many local ports in TIME_WAIT that the next load cannot begin on the same system. Then a fresh
bring-up (start from nothing) is needed. Samples record the sockets in TIME_WAIT that their load left. Older samples did
not. For these, the connections that the proxy opened are counted: each waits 60 s if the proxy is the side that closes
it. An older sample cannot show which side closed.
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
from lab.base.grouping import group_values
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
"""The least number of samples of a load that must show that it leaves too many local ports in TIME_WAIT."""
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
    """The results of earlier runs under the same conditions that help to plan a new run, such as how much a metric varies.

    Attributes:
        runs: The ids of the earlier runs, the newest first.
        bring_up_s: The median seconds of a bring-up (start of a system) in the newest run; None if unknown.
        noises: How much each metric of each baseline varies at each load point.
        manifests: Variant → the digest of its manifests in the newest run.
        only_aa: True if the newest run only compared variants with themselves (A/A).

    """

    runs: tuple[str, ...]
    bring_up_s: float | None
    noises: tuple[Noise, ...]
    manifests: Mapping[str, str]
    only_aa: bool = False

    @property
    def id(self) -> str:
        """The id of the newest of the earlier runs."""
        return self.runs[0]

    @property
    def source(self) -> str:
        """The phrase for people that names the earlier runs: `from the pairs of RUN and 3 more`."""
        older = f" and {len(self.runs) - 1} more" if len(self.runs) > 1 else ""
        return f"from the {'A/A run' if self.only_aa else 'pairs of'} {self.id}{older}"

    def of(self, baseline: str) -> list[Noise]:
        """Return the noise of one baseline (how much its results vary) for each metric at each load point.

        Metrics that could not be judged are included, for example those with too few blocks. Their `why` is the reason.
        """
        return [noise for noise in self.noises if noise.variant == baseline]

    def covers(self, baselines: Mapping[str, str]) -> bool:
        """Return whether the earlier runs show the noise of every baseline, measured with its present manifests.

        Args:
            baselines: Name of a baseline → the digest of its present manifests, which the newest run must have.

        """
        complete = all(any(not noise.why for noise in self.of(name)) for name in baselines)
        return complete and all(self.manifests.get(name) == digest for name, digest in baselines.items())


def find_past_runs(record: RunRecord) -> Iterator[Past]:
    """Yield the results (such as the noise) of each earlier run that had the same conditions as a given run, the newest first.

    The conditions are the target, the loads, the generators, and the facts about the machine; it may have been
    restarted since. Damaged runs and runs with fewer than six blocks (repetitions) are left out.

    Args:
        record: The record of the given run.

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
    """Return the results of one earlier run that help to plan later ones, such as its noise and how long starts take.

    Args:
        record: The record of the earlier run.
        samples: All samples of the earlier run.
        summary: The summary of its steady loads.

    """
    durations = list_bring_ups_s(samples)
    nulls, variants = list_null_arms(record.arms), [arm for arm in record.arms if arm.role == "variant"]
    only_aa = bool(nulls) and len(nulls) == len(variants)
    digests = {name: variant.manifests_sha256 for name, variant in record.variants.items()}
    return Past((record.id,), median(durations) if durations else None, measure_noise(summary), digests, only_aa)


def best_past(record: RunRecord) -> Past | None:
    """Return the results (such as the noise) of earlier runs under the same conditions as a run; None if there are none.

    The runs that show the noise of every baseline with its present manifests are pooled. If there is no such run, the
    newest run that shows any noise is used, or else the newest run.
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
        past: The results of earlier runs under the same conditions; None if there are none.
        fresh: The additional bring-ups (starts of a system) that are certain, because a load leaves too many local
            ports in TIME_WAIT for the next load.
        duration_s: The expected duration of the run in seconds.

    """

    past: Past | None
    fresh: PlannedAnew
    duration_s: float


def forecast(record: RunRecord, bring_up_s: float, past: Past | None = None) -> Forecast:
    """Forecast how long a run takes and how many additional bring-ups (starts of a system) it needs.

    Args:
        record: The record of the run.
        bring_up_s: The seconds of one bring-up, used if no earlier run shows them.
        past: The results of earlier runs; None to find them by `best_past`.

    """
    planned, past = record.plan(), past or best_past(record)
    if past is not None and past.bring_up_s is not None:
        bring_up_s = past.bring_up_s
    fresh = find_fresh_bring_ups(planned, record.target)
    return Forecast(past, fresh, planned.lasts_s(bring_up_s) + fresh.count * bring_up_s)


def pool_pasts(pasts: Sequence[Past]) -> Past:
    """Combine the noise that several earlier runs show; all other results are those of the newest run, which is the first."""
    groups = group_values(
        ((noise.variant, noise.point, noise.metric, noise.scheme), noise)
        for past in pasts
        for noise in past.noises
        if not noise.why or past is pasts[0]
    )
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
    """Return how much a metric varies at each load point, for the metric in which effects are decided at that point.

    Points at which this noise is unknown are left out.

    Args:
        noise: The noise of one baseline, in all metrics at all points.
        points: The load points of the sweep.
        metric: The primary metric, which another metric may replace at a point. If it is None, the metrics of
            OF_A_BASELINE are used.
        asked: True to use exactly `metric` at every point.
        schemes: Point → the kind of pair (two arms measured at once) that gives the effect there, or None for solo
            samples. Without this mapping, any kind is accepted.

    """
    judged: list[Noise] = []
    for point in points:
        by_metric = {
            candidate.metric: candidate
            for candidate in noise
            if candidate.point == point.name and (schemes is None or candidate.scheme == schemes[point.name])
        }
        reasons = {name: candidate.why for name, candidate in by_metric.items() if candidate.why}
        given = (metric,) if asked and metric else None
        metrics = given or (OF_A_BASELINE if metric is None else (choose_metric(metric, point, points, reasons),))
        judged += [by_metric[name] for name in metrics if name in by_metric and not by_metric[name].why]
    return judged


def select_committed_noise(target: str, variants: Iterable[str], points: Sequence[LoadPoint]) -> Iterator[Noise]:
    """Yield how much metrics of variants vary at load points, as estimated from the committed measurements in data/pairs.

    The estimate is used if no earlier run shows the noise. The committed measurements are pairs (two arms measured at
    once) of other variants under other loads. Only one number may be of the variant itself: the noise of CPU time per
    request in a pair. It is computed from the variant's variance components (how much repeats, reloads and starts
    vary), if these are committed.

    Args:
        target: The target of the run.
        variants: The names of the variants.
        points: The load points.

    """
    committed = list(list_committed_noise())
    for variant, point in product(variants, points):
        for deviation in (candidate for candidate in committed if candidate.load == point.scheme):
            sd, pilot = deviation.sd, deviation.rounds
            component = levels.find_components(target, {variant}, deviation.scheme) if deviation.scheme else None
            if component is not None and deviation.metric == "cpu_per_request":
                sd, pilot = levels.compute_sd(component, point.generations, point.duration_s, point.singly)
            yield Noise(
                variant, point.name, deviation.metric, deviation.scheme, None, None, sd, pilot, None, False, 0, 0
            )


# -- fresh bring-ups -----------------------------------------------------------------------------------------


def share_left(sample: Sample) -> float | None:
    """Return the share of local ports in TIME_WAIT after a sample's load; None if the sample does not show it.

    Older samples did not record these sockets. For them it is estimated from the connections that the proxy opened.
    """
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
    """Find the loads that left too many local ports in TIME_WAIT after each of their solo samples.

    Returns:
        (variant, load) → the least share of local ports that was left in TIME_WAIT. Only loads with at least
        LEAST_SAMPLES valid solo samples (measured alone) are included.

    """
    shares = group_values(
        ((sample.variant, _strip_name(sample.point)), share_left(sample))
        for sample in samples
        if sample.valid and sample.pair is None and sample.point.disturbance is None
    )
    least = {
        load: min(share or 0.0 for share in lefts) for load, lefts in shares.items() if len(lefts) >= LEAST_SAMPLES
    }
    return {load: share for load, share in least.items() if share >= PORT_SHARE}


def count_fresh_bring_ups(planned: Plan, shares: Mapping[VariantLoad, float], runs: Sequence[str] = ()) -> PlannedAnew:
    """Count the additional bring-ups (starts of a system) that a plan needs, because loads leave too few free local ports.

    A load needs an additional bring-up if it follows such a load on the same start of a system.

    Args:
        planned: The plan.
        shares: (variant, load) → the least share of local ports that it leaves in TIME_WAIT (see `leaving_loads`).
        runs: The ids of the runs that showed these shares.

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
    """Count the additional bring-ups (starts of a system) that a plan needs, by what stored runs show about its loads.

    The stored runs are the user's own and the committed ones. They are used if they have the same target, one of the
    plan's variants, and no disruption.
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
    """Return whether a sample is solo (measured alone) and its variant and load point are in a set.

    Args:
        loads: The set of (variant, name of the load point).
        sample: The sample.

    """
    return sample.pair is None and (sample.variant, sample.point.name) in loads


def _find_runs(variants: Set[str], target: str) -> Iterator[RunStore]:
    """Yield the stored runs on a target that have one of the variants and only loads without a disruption.

    To save time, the text of each run.json is searched before it is parsed.
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
    """Return the least number of ports that a planned load leaves in TIME_WAIT, as a share of what a known load leaves.

    The share (0 to 1) is 0 if the loads differ in keys that are not in MAY_DIFFER, or if the planned load has fewer
    connections. A shorter load leaves at least its proportional part, because most connections are opened while ports
    are free. One side of a pair (two arms measured at once) leaves half of that.

    Args:
        slot: The planned measurement.
        load: The known load: (variant, load point without its name).

    """
    variant, known_load = load
    point = _strip_name(slot.point)
    if (
        slot.arm.variant != variant
        or point.connections < known_load.connections
        or point.model_copy(update={name: getattr(known_load, name) for name in MAY_DIFFER}) != known_load
    ):
        return 0.0
    lasts_s, known_s = (timed.duration_s + timed.warmup_s for timed in (point, known_load))
    return min(1.0, lasts_s / known_s) * (0.5 if slot.against else 1.0)
