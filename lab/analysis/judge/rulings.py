"""Rulings on whether an effect may be judged at all: why it may not, or which note goes with it.

Rulings depend on what limited the rate, on what failed, and on what pairs (two arms measured at once) show of known costs. The
metric is chosen before the effect is known. The choice may depend on what was the limit. If one side's number is only a bound, it
may also depend on which side is the faster one. It never depends on how large an effect is, so the probability of a false claim
stays the same.

- If the load generator was the limit of a closed loop, the number is partly the generator's. If it limited only the faster
  side, the difference is real and at least that large: without the limit the faster side could only be faster.
- A percentile of a closed loop is judged at any load of the generator in one case: the slower side dropped connections at a
  full queue in every block, its percentile lies beyond the kernel's first retransmission (1 s), and the other side's lies below
  half of it. The generator's own work cannot make that difference.
- If errors are the subject of a load, and a hundredth or more of the requests failed in any sample, only the rate of good
  answers is judged, because latencies are those of answered requests. If fewer failed, they all lie beyond p99, however long
  they would have taken, and the answers' own p99 is lower only by their share of the ranks. For p99.9 the bound is a thousandth.
- Latency is judged at points with a rate, if the sweep has any: at a closed loop, latency follows from the throughput.
- The rate is judged at closed loops, where it is not given.
- The catalogue says whether a metric is a latency. Any other ratio that is read off a sample is judged at any load, but not if
  the generator was the limit: how it would grow in a faster loop is not known. CPU per request is judged even then, because it is
  a property of each request, however many there are.

`choose_metric` chooses the metric that replaces the primary one if that one is not judged. A latency that the generator limits
is not replaced: the proxy's CPU per request shows what more requests would cost, not how long a backend takes. A sweep with
rates can judge this latency.

The last section reads what committed pairs showed of known costs, and of a variant against itself. It decides whether a pair can
be *equivalent*, and what a plan may promise elsewhere. A metric and a scheme without known costs recover nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, expm1, log
from statistics import fmean, stdev

import numpy as np

from lab.analysis.aggregate.cells import ArmCell
from lab.base.grouping import group_values
from lab.model.bottleneck import FAILED
from lab.model.metrics import find_metric
from lab.model.pairs import REPEATS, WAYS, Compared, Scheme, Way
from lab.model.samples import Reason, Sample
from lab.model.sweeps import LoadPoint
from lab.records.levels import read_pairs
from lab.stats.paired import Floats

LIMITED = "generator-limited; only CPU per request carries the effect"
AT_LEAST = "at least: the faster side was limited by the generator"
ERRORS_MIX = "requests failed, as is this load's subject: only the rate of good answers is judged"
GIVEN_RATE = "the rate is given here, not measured"
FOLLOWS = "latency is judged at the points with a rate; a closed loop's follows from its throughput"
FAILED_BEYOND_P999 = 0.001
"""The share of failed requests from which on p99.9 is not judged, where errors are the subject."""
RETRANSMISSION_S = 1.0
"""The seconds until the first retransmission of a SYN (RFC 6298)."""
DROPS = ("ListenOverflows", "ListenDrops")
"""The counters that a full accept queue always raises.

Retransmission timeouts are counted for any connection, also for one to a backend.
"""
LEAST_SLOPE = 0.8
"""The least lower 95 % limit of paired cost per injected cost at which a pair can be *equivalent*."""
DRAWS, SEED = 2000, 2511


@dataclass(frozen=True, slots=True)
class Ruling:
    """The ruling on whether the effect of an arm (variant) in one metric gets a decision (is judged).

    Attributes:
        why: The reason why the effect is not judged; empty if it is judged.
        note: A note that is printed with the effect; empty for none.
        bound: True if the load generator limited one side, so that this side's number is only a bound. The effect can
            be claimed as better or worse, but the true one may be beyond its interval.

    """

    why: str = ""
    note: str = ""
    bound: bool = False


def find_generator_limits(samples: Iterable[Sample]) -> set[bool]:
    """Return whether the load generator was the limit of closed-loop samples, as the set of the answers for all samples.

    Returns:
        {True} if it was the limit of all of them, {False} if of none, {True, False} if of some. The set is empty
        without a closed-loop sample.

    """
    return {sample.limited_by == "generator" for sample in samples if sample.point.rate_rps is None}


def rule_on(metric: str, arm: ArmCell, base: ArmCell, points: Sequence[LoadPoint], pairs: bool = True) -> Ruling:
    """Decide whether an arm's effect against its baseline in one metric may get a decision at a steady load.

    Args:
        metric: The metric's name in the catalogue.
        arm: The samples of the arm at the load point.
        base: The samples of the arm that it is compared with.
        points: The steady load points of the sweep.
        pairs: True if both arms are of one run, so that their blocks (repetitions) belong together; False for two runs.

    """
    point = base.point
    errors = "errors" in point.subject
    if metric == "rate" and point.rate_rps is not None and not errors:
        return Ruling(GIVEN_RATE)
    mixing = FAILED_BEYOND_P999 if metric == "p99.9" else FAILED
    for sample in (*arm.counted.values(), *base.counted.values()) if metric != "rate" and errors else ():
        unanswered = sum(count for kind, count in sample.errors.items() if kind != "status")
        tried = (sample.requests or 0) + unanswered
        if tried and sum(sample.errors.values()) / tried >= mixing:
            return Ruling(ERRORS_MIX)
    if metric == "cpu_per_request":
        same = None in (arm.cpu_of, base.cpu_of) or arm.cpu_of == base.cpu_of
        return Ruling("" if same else "CPU per request of a proxy is not comparable with a backend's")
    entry = find_metric(metric)
    if entry.latency and point.rate_rps is None and any(candidate.rate_rps is not None for candidate in points):
        return Ruling(FOLLOWS)
    arm_limited, base_limited = (
        find_generator_limits(arm.counted.values()),
        find_generator_limits(base.counted.values()),
    )
    if True not in arm_limited | base_limited:
        return Ruling()
    if middles := _find_middles(metric, arm, base, pairs) if entry.latency or metric == "rate" else None:
        slower = arm_limited if (middles[0] > middles[1]) == (entry.better == "less") else base_limited
        if slower == {False} and middles[0] != middles[1]:
            return Ruling(note=AT_LEAST, bound=True)
        if entry.latency and explain_by_retransmission(arm.counted.values(), base.counted.values(), middles):
            note = "connections were dropped and sent again after 1 s: no doing of the generator's"
            return Ruling(note=note, bound=True)
    return Ruling(LIMITED)


def explain_by_retransmission(arm: Iterable[Sample], base: Iterable[Sample], middles: tuple[float, float]) -> bool:
    """Return whether dropped connections explain a difference of latencies, which then is not due to the generator's limit.

    Three things must hold. The larger latency is beyond the kernel's first retransmission (1 s), the smaller is below
    half of it, and the slower side dropped connections in every sample.

    Args:
        arm: The samples of the arm.
        base: The samples of the arm that it is compared with.
        middles: The latencies of the two sides in seconds (arm, baseline).

    """
    slower = arm if middles[0] > middles[1] else base
    beyond = max(middles) >= RETRANSMISSION_S and min(middles) < RETRANSMISSION_S / 2
    return beyond and all(
        any(value > 0 and name.rpartition("/")[2] in DROPS for name, value in sample.counters.items())
        for sample in slower
    )


def choose_metric(metric: str, point: LoadPoint, points: Sequence[LoadPoint], reasons: Mapping[str, str]) -> str:
    """Choose the metric in which a variant is judged at a load point: its primary metric, or one that replaces it.

    - p99 replaces the rate at an offered rate, if the sweep has no closed loop, since only a closed loop measures a rate.
    - The rate of good answers replaces any metric if so many requests failed that the metric would mix answers and errors.
    - CPU per request replaces the rate at a closed loop that the load generator limited.

    The choice follows from the load, from what was the limit, and from whether requests failed. It never depends on the
    size of an effect.

    Args:
        metric: The variant's primary metric.
        point: The load point.
        points: The steady load points of the sweep.
        reasons: Metric → the reason why it gets no decision at the point; absent or empty if it gets one.

    """
    given = point.rate_rps is not None and "errors" not in point.subject
    if metric == "rate" and given and all(candidate.rate_rps is not None for candidate in points):
        return "p99"
    if reasons.get(metric) == ERRORS_MIX:
        return "rate"
    return "cpu_per_request" if metric == "rate" and reasons.get(metric) == LIMITED else metric


def select_failures(invalid: Mapping[Reason, int]) -> dict[Reason, int]:
    """Select the reasons of invalid samples that are failures of the measured system, each with its number of samples.

    Faults of the machine and of the load generator are left out.

    Args:
        invalid: Reason of invalidity → number of samples.

    """
    return {reason: count for reason, count in invalid.items() if reason.broken}


def describe_failures(arm: Mapping[Reason, int], base: Mapping[Reason, int], counted: str) -> str:
    """Describe how often an arm (variant) failed to do its work, if it failed in more samples than its baseline.

    The remaining blocks (repetitions) of such an arm are not representative: the missing ones may have been its worst.

    Args:
        arm: Reason of invalidity → number of the arm's samples.
        base: Reason of invalidity → number of the baseline's samples.
        counted: How many of the arm's blocks have a result, as `6 of 10 blocks`.

    Returns:
        The description, as `6 of 10 blocks, proxy-died 4`; empty if the arm did not fail more often.

    """
    failed = select_failures(arm)
    if sum(failed.values()) <= sum(select_failures(base).values()):
        return ""
    return ", ".join([counted, *(f"{reason} {count}" for reason, count in failed.items())])


def _find_middles(metric: str, arm: ArmCell, base: ArmCell, pairs: bool) -> tuple[float, float] | None:
    """Return the average values (arm, baseline) whose ratio is the effect; None if one of them is unknown.

    Args:
        metric: The metric's name in the catalogue.
        arm: The samples of the arm.
        base: The samples of the arm that it is compared with.
        pairs: True to return geometric means over the blocks (repetitions) that both have (one run), False to return
            the median of each side's blocks (two runs).

    """
    arm_values, base_values = arm.known(metric), base.known(metric)
    if not pairs:
        levels = arm.level(metric), base.level(metric)
        return (levels[0].value, levels[1].value) if levels[0] and levels[1] else None
    common = arm_values.keys() & base_values.keys()
    means = [
        exp(sum(log(side[block]) for block in common) / len(common)) for side in (arm_values, base_values) if common
    ]
    return (means[0], means[1]) if means else None


# -- what pairs recover ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PairNoise:
    """The noise of one metric when a baseline was compared with itself, in the committed measurements of pairs (data/pairs).

    Attributes:
        metric: The metric's name in the catalogue.
        scheme: The kind of pair (both measured at once) in which they were compared; None if each had the machine to
            itself.
        load: The kind of load, named by its usual kind of pair: interleaved slices (a closed loop), or both sides
            concurrently (an offered rate).
        sd: The standard deviation of the log-ratio in one block (repetition).
        rounds: The number of rounds (repetitions of the measurement) from which it is computed.

    """

    metric: str
    scheme: Scheme | None
    load: Scheme
    sd: float
    rounds: int


@cache
def recovers(metric: str, scheme: Scheme) -> bool:
    """Return whether pairs (two arms measured at once) show all of a cost in a metric, by the committed measurements.

    For these, variants with known amounts of needless work were measured in pairs and alone.

    Args:
        metric: The metric's name in the catalogue.
        scheme: The kind of pair: interleaved slices, or both sides at once.

    Returns:
        True if pairs show at least the share LEAST_SLOPE of the known costs, by the lower end of its 95 % interval.
        False if this end is lower, or if it was not measured.

    """
    least = least_slope(read_pairs(), metric, scheme)
    return least is not None and least >= LEAST_SLOPE


def least_slope(measurements: Sequence[Compared], metric: str, way: Way) -> float | None:
    """Return a lower bound on how much of a real cost pairs show: 1 = all of it, 0.8 = 80 %.

    A pair is two arms measured at once. The real cost is the one that solo samples (one arm measured alone) show.

    1. The cost per unit of injected work is computed for pairs and for solo samples. Each is the slope of a
       least-squares line through the origin, from the amount of work to the effect on the metric.
    2. The share is the slope of the pairs divided by that of the solo samples.
    3. Both steps are repeated with randomly resampled rounds (repetitions). The result is the lower end of the 95 %
       interval of the shares.

    Args:
        measurements: Committed measurements of variants with known amounts (doses) of needless work.
        metric: The metric's name in the catalogue.
        way: The kind of pair.

    Returns:
        The lower bound of the share. It is None if no dose was measured in two rounds by pairs, or none in two rounds
        by solo samples.

    """
    points = {measurement.point for measurement in measurements if measurement.way == way}
    rng, slopes = np.random.default_rng(SEED), list[Floats]()
    for method in (way, "plain"):
        rounds = group_values(
            ((measurement.dose, measurement.round), measurement.log_ratios[metric])
            for measurement in measurements
            if measurement.way == method and measurement.point in points and measurement.valid
            if measurement.dose and metric in measurement.log_ratios
        )
        doses = group_values((dose, expm1(fmean(logs))) for (dose, _), logs in rounds.items())
        resampled: dict[float, Floats] = {
            dose: rng.choice(effects, (DRAWS, len(effects))).mean(axis=1)
            for dose, effects in doses.items()
            if len(effects) > 1
        }
        if not resampled:
            return None
        slopes.append(
            np.sum([dose * mean for dose, mean in resampled.items()], axis=0) / sum(dose**2 for dose in resampled)
        )
    return float(np.quantile(slopes[0] / slopes[1], 0.025))


@cache
def find_usual_gap() -> float | None:
    """Return the usual upper limit of the CPU time that no observed process explains while a pair (two arms at once) runs.

    It is a share of the CPUs' busy time: the 95th percentile over the committed pairs (data/pairs). None without any.
    """
    gaps = [
        measurement.unexplained
        for measurement in read_pairs()
        if measurement.valid and measurement.unexplained is not None
    ]
    return float(np.quantile(gaps, 0.95)) if gaps else None


def list_committed_noise() -> Iterator[PairNoise]:
    """Yield how much each metric varied in the committed comparisons of baselines with themselves (data/pairs).

    There is an entry for each baseline, load, metric and way of measuring: both sides at once as a pair, or one after
    the other. It needs two complete rounds (repetitions), in which every measurement is valid. Loads that were not
    measured in pairs have no entry.
    """
    against_itself = [measurement for measurement in read_pairs() if measurement.variant == measurement.baseline]
    loads: dict[str, Scheme] = {
        measurement.point: measurement.way for measurement in against_itself if measurement.way != "plain"
    }
    groups: dict[tuple[str, str, Way, str], dict[int, list[float]]] = {}
    for measurement in sorted(
        against_itself,
        key=lambda measurement: (measurement.variant, measurement.point, WAYS.index(measurement.way)),
    ):
        for metric, value in measurement.log_ratios.items():
            rounds = groups.setdefault((measurement.variant, measurement.point, measurement.way, metric), {})
            rounds.setdefault(measurement.round, []).extend([value] if measurement.valid else [])
    for (_, point, way, metric), rounds in groups.items():
        complete = [values for values in rounds.values() if len(values) == (1 if way == "plain" else REPEATS)]
        if len(complete) < 2 or point not in loads:
            continue
        # a round's mean is over REPEATS of one pair, and a block's pair is measured once
        within = 0.0 if way == "plain" else fmean((first - second) ** 2 / 2 for first, second in complete)
        sd = (stdev([fmean(values) for values in complete]) ** 2 + within * (1 - 1 / REPEATS)) ** 0.5
        yield PairNoise(metric, None if way == "plain" else way, loads[point], sd, len(complete))
