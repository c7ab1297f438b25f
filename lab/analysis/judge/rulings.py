"""May an effect be judged at all? Who was the limit, what failed, what pairs recover → why not, or what has to be said with it.

One metric is chosen beforehand. Which it is may depend on who was the limit and, where one side's number is a bound, on
which side of the other it lies, but not on how far: that leaves the odds of a false claim as they were.

- A generator that was the limit at a closed loop is part of the number. Where it was for one side in some block and for
  the other in none, and that other is the slower, the difference is real and at least that large: the faster
  side could only be faster without it.
- A percentile of a closed loop counts whatever the generator's load, where that side counted connections dropped at a
  full queue in every block and its percentile lies beyond the kernel's first retransmission (1 s), the other's below
  half of it: no generator's own work makes that difference.
- Where errors are the subject and a hundredth or more failed in any sample, only the rate of good answers is judged:
  latencies are of what was answered. Fewer lie beyond p99 whatever they would have taken, and the answers' own p99 is lower
  only by their share of the ranks; for p99.9 it is a thousandth.
- Latency is judged at points with a rate, if the sweep has any: a closed loop's follows from its throughput.
- The rate is judged at closed loops, where it is not given.
- Whether a metric is a latency its entry in the catalogue says. Any other ratio that is read off a sample is judged at any load,
  but not where the generator was the limit: how it would grow in a faster loop is not known. CPU per request is judged
  there, too: it is of each request, however many there are.

`carrier` says which metric stands for the primary one where that one is not judged. Nothing stands for a latency that the
generator limits: the proxy's CPU per request says what more requests would cost, not how long a backend takes. A
sweep with rates judges it.

What pairs showed of known costs and of nothing, as committed, says whether a pair may say *same*, and what a plan may promise elsewhere:
a metric and a scheme without known costs recover nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, expm1, log
from statistics import fmean, stdev

import numpy as np

from lab.analysis.aggregate.cells import Cell
from lab.model.bottleneck import FAILED
from lab.model.metrics import about
from lab.model.pairs import REPEATS, WAYS, Compared, Scheme, Way
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Point
from lab.records.levels import committed_pairs
from lab.stats.paired import Floats

LIMITED = "generator-limited; only CPU per request carries the effect"
AT_LEAST = "at least: the faster side was limited by the generator"
ERRORS_MIX = "requests failed, as is this load's subject: only the rate of good answers is judged"
GIVEN_RATE = "the rate is given here, not measured"
FOLLOWS = "latency is judged at the points with a rate; a closed loop's follows from its throughput"
FAILED_BEYOND_P999 = 0.001
RETRANSMISSION_S = 1.0
"""RFC 6298: the first retransmission of a SYN."""
DROPS = ("ListenOverflows", "ListenDrops")
"""What a full accept queue always counts. Retransmission timeouts are counted for any connection, a backend's too."""
LEAST_SLOPE = 0.8
"""The lower 95 % limit of what is paired on what is injected, from which on a pair may say *same*."""
DRAWS, SEED = 2000, 2511


@dataclass(frozen=True, slots=True)
class Ruling:
    """`why` it is not judged, empty if it is; `note` goes with it. `bound`: it can be claimed, but bounds nothing from above."""

    why: str = ""
    note: str = ""
    bound: bool = False


def limited(samples: Iterable[Sample]) -> set[bool]:
    """For each closed-loop sample: whether the generator was its limit."""
    return {sample.limited_by == "generator" for sample in samples if sample.point.rate_rps is None}


def ruling(metric: str, own: Cell, base: Cell, points: Sequence[Point], pairs: bool = True) -> Ruling:
    """Whether the effect of `own` against `base` in a metric is judged at their point of the sweep's `points`. `pairs`: of blocks."""
    point = base.point
    errors = "errors" in point.subject
    if metric == "rate" and point.rate_rps is not None and not errors:
        return Ruling(GIVEN_RATE)
    mixing = FAILED_BEYOND_P999 if metric == "p99.9" else FAILED
    for sample in (*own.counted.values(), *base.counted.values()) if metric != "rate" and errors else ():
        unanswered = sum(count for kind, count in sample.errors.items() if kind != "status")
        tried = (sample.requests or 0) + unanswered
        if tried and sum(sample.errors.values()) / tried >= mixing:
            return Ruling(ERRORS_MIX)
    if metric == "cpu_per_request":
        same = None in (own.cpu_of, base.cpu_of) or own.cpu_of == base.cpu_of
        return Ruling("" if same else "CPU per request of a proxy is not comparable with a backend's")
    known = about(metric)
    if known.latency and point.rate_rps is None and any(other.rate_rps is not None for other in points):
        return Ruling(FOLLOWS)
    ours, theirs = limited(own.counted.values()), limited(base.counted.values())
    if True not in ours | theirs:
        return Ruling()
    if middles := _middles(metric, own, base, pairs) if known.latency or metric == "rate" else None:
        slower = ours if (middles[0] > middles[1]) == (known.better == "less") else theirs
        if slower == {False} and middles[0] != middles[1]:
            return Ruling(note=AT_LEAST, bound=True)
        if known.latency and resent(own.counted.values(), base.counted.values(), middles):
            said = "connections were dropped and sent again after 1 s: no doing of the generator's"
            return Ruling(note=said, bound=True)
    return Ruling(LIMITED)


def resent(own: Iterable[Sample], base: Iterable[Sample], middles: tuple[float, float]) -> bool:
    """Whether dropped connections make the difference of two times (`middles`, s; own first), whatever limited the loop."""
    slower = own if middles[0] > middles[1] else base
    beyond = max(middles) >= RETRANSMISSION_S and min(middles) < RETRANSMISSION_S / 2
    return beyond and all(
        any(value > 0 and name.rpartition("/")[2] in DROPS for name, value in sample.counters.items())
        for sample in slower
    )


def carrier(metric: str, point: Point, points: Sequence[Point], why: Mapping[str, str]) -> str:
    """The metric that carries the effect of a variant whose primary one is `metric`. `why`: metric → why it is not judged.

    rate → p99              at a given rate, in a sweep that has no closed loop to measure a rate
    rate → CPU per request  at a closed loop that the generator limited
    any → rate              of good answers, where errors are the subject and too many failed for any other
    So it follows from the load, who was the limit and whether requests failed, never from how large an effect looks.
    """
    given = point.rate_rps is not None and "errors" not in point.subject
    if metric == "rate" and given and all(other.rate_rps is not None for other in points):
        return "p99"
    if why.get(metric) == ERRORS_MIX:
        return "rate"
    return "cpu_per_request" if metric == "rate" and why.get(metric) == LIMITED else metric


def failures(invalid: Mapping[Reason, int]) -> dict[Reason, int]:
    """Of the samples that do not count, by reason: those in which the system did not do its work."""
    return {reason: count for reason, count in invalid.items() if reason.broken}


def fell(own: Mapping[Reason, int], base: Mapping[Reason, int], counted: str) -> str:
    """How `own` did not do its work in more samples than `base`: what `counted`, and why not the others; empty: it did.

    What is left of it is no fair sample then: the blocks that are missing may have been its worst. `own`, `base`: invalid samples by reason.
    """
    failed = failures(own)
    if sum(failed.values()) <= sum(failures(base).values()):
        return ""
    return ", ".join([counted, *(f"{reason} {count}" for reason, count in failed.items())])


def _middles(metric: str, own: Cell, base: Cell, pairs: bool) -> tuple[float, float] | None:
    """What the estimate is the ratio of: both geometric means over the blocks that both have; where they are no pairs, both medians."""
    mine, theirs = own.known(metric), base.known(metric)
    if not pairs:
        levels = own.level(metric), base.level(metric)
        return (levels[0].value, levels[1].value) if levels[0] and levels[1] else None
    both = mine.keys() & theirs.keys()
    means = [exp(sum(log(side[block]) for block in both) / len(both)) for side in (mine, theirs) if both]
    return (means[0], means[1]) if means else None


# -- what pairs recover ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """One metric's scatter of a baseline against itself, as one block has it; a log-ratio's standard deviation.

    `scheme`: how it was a pair, None: each alone; `load`: how a pair is loaded there.
    """

    metric: str
    scheme: Scheme | None
    load: Scheme
    sd: float
    rounds: int


@cache
def recovers(metric: str, scheme: Scheme) -> bool:
    """Whether effects in the metric are recovered where both ran by turns, or at once."""
    least = least_slope(committed_pairs(), metric, scheme)
    return least is not None and least >= LEAST_SLOPE


def least_slope(found: Sequence[Compared], metric: str, way: Way) -> float | None:
    """Of known costs: what pairs show of them at least, 1 = all; None without pairs and arms alone of two rounds or more.

    Cost per unit of dose (least squares through nothing) as the pairs have it, over that of the arms alone: the lower end of its 95 %
    interval over rounds that are drawn anew.
    """
    points = {one.point for one in found if one.way == way}
    lots, slopes = np.random.default_rng(SEED), list[Floats]()
    for each in (way, "plain"):
        doses: dict[float, dict[int, list[float]]] = {}
        for one in found:
            if one.way == each and one.point in points and one.valid and one.dose and metric in one.log_ratios:
                doses.setdefault(one.dose, {}).setdefault(one.round, []).append(one.log_ratios[metric])
        drawn: dict[float, Floats] = {}
        for dose, rounds in doses.items():
            if len(rounds) > 1:
                effects = [expm1(fmean(logs)) for logs in rounds.values()]
                drawn[dose] = lots.choice(effects, (DRAWS, len(effects))).mean(axis=1)
        if not drawn:
            return None
        slopes.append(np.sum([dose * mean for dose, mean in drawn.items()], axis=0) / sum(dose**2 for dose in drawn))
    return float(np.quantile(slopes[0] / slopes[1], 0.025))


@cache
def usual_gap() -> float | None:
    """What of the CPUs' busy time is usually nobody's: more had one in twenty of the committed pairs; None without any."""
    found = [one.unexplained for one in committed_pairs() if one.valid and one.unexplained is not None]
    return float(np.quantile(found, 0.95)) if found else None


def scatter_elsewhere() -> list[Elsewhere]:
    """Of what was compared with itself, of every way, over the rounds whose every repeat counted."""
    itself = [one for one in committed_pairs() if one.variant == one.baseline]
    loads: dict[str, Scheme] = {one.point: one.way for one in itself if one.way != "plain"}
    groups: dict[tuple[str, str, Way, str], dict[int, list[float]]] = {}
    for one in sorted(itself, key=lambda one: (one.variant, one.point, WAYS.index(one.way))):
        for metric, value in one.log_ratios.items():
            rounds = groups.setdefault((one.variant, one.point, one.way, metric), {})
            rounds.setdefault(one.round, []).extend([value] if one.valid else [])
    found: list[Elsewhere] = []
    for (_, point, way, metric), rounds in groups.items():
        whole = [values for values in rounds.values() if len(values) == (1 if way == "plain" else REPEATS)]
        if len(whole) < 2 or point not in loads:
            continue
        # a round's mean is of REPEATS of one pair, and a block's pair is measured once
        within = 0.0 if way == "plain" else fmean((first - second) ** 2 / 2 for first, second in whole)
        sd = (stdev([fmean(values) for values in whole]) ** 2 + within * (1 - 1 / REPEATS)) ** 0.5
        found.append(Elsewhere(metric, None if way == "plain" else way, loads[point], sd, len(whole)))
    return found
