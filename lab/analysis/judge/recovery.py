"""What pairs showed of known costs and of nothing, as committed → whether a pair may say *same*, and what a plan may promise elsewhere.

Refuses to believe a pair of what was not measured: a metric and scheme without known costs recovers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import expm1
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

from lab.model.pairs import REPEATS, WAYS, Compared, Scheme, Way
from lab.records.pairs import committed

Floats = npt.NDArray[np.float64] | np.floating
LEAST_SLOPE = 0.8
"""The lower 95 % limit of what is paired on what is injected, from which on a pair may say *same*."""
DRAWS, SEED = 2000, 2511


@dataclass(frozen=True, slots=True)
class Slope:
    """Of known costs: what the pair showed of them, 1 = all; with its 95 % interval over the rounds, drawn anew."""

    value: float
    low: float
    high: float
    doses: int
    rounds: int


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
    found = slope(committed(), metric, scheme)
    return found is not None and found.low >= LEAST_SLOPE


def slope(found: Sequence[Compared], metric: str, way: Way) -> Slope | None:
    """Cost per unit of dose as the pairs have it, over that of the arms alone; None without both, at two rounds or more."""
    points = {one.point for one in found if one.way == way}
    sides = [_by_dose(one for one in found if one.way == each and one.point in points) for each in (way, "plain")]
    paired, plain = (
        {dose: told for dose, rounds in side.items() if len(told := _told(rounds, metric)) > 1} for side in sides
    )
    if not paired or not plain:
        return None
    lots = np.random.default_rng(SEED)
    drawn = _per_dose(_drawn(paired, lots)) / _per_dose(_drawn(plain, lots))
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = _per_dose(_means(paired)) / _per_dose(_means(plain))
    return Slope(float(value), float(low), float(high), len(paired), min(len(told) for told in paired.values()))


@cache
def usual_gap() -> float | None:
    """What of the CPUs' busy time is usually nobody's: more had one in twenty of the committed pairs; None without any."""
    found = [one.unexplained for one in committed() if one.valid and one.unexplained is not None]
    return float(np.quantile(found, 0.95)) if found else None


@dataclass(frozen=True, slots=True)
class Scatter:
    """One variant, way and metric over the rounds whose every repeat counted, per cent of the baseline's (100 · log-ratio).

    `sd`: of one round's mean, None below two rounds; `repeat_sd`: of one measurement about its pair's mean, None where nothing was repeated.
    """

    variant: str
    point: str
    way: Way
    metric: str
    rounds: int
    mean: float
    sd: float | None
    repeat_sd: float | None


def scatter(found: Sequence[Compared]) -> list[Scatter]:
    """Return what rounds scatter by, by variant, point, way and metric, in the order of their first measurement."""
    groups: dict[tuple[str, str, Way, str], dict[int, list[float]]] = {}
    for one in sorted(found, key=lambda one: (one.variant, one.point, WAYS.index(one.way))):
        for metric, value in one.log_ratios.items():
            rounds = groups.setdefault((one.variant, one.point, one.way, metric), {})
            rounds.setdefault(one.round, []).extend([100 * value] if one.valid else [])
    rows: list[Scatter] = []
    for (variant, point, way, metric), rounds in groups.items():
        wanted = 1 if way == "plain" else REPEATS
        whole = [values for values in rounds.values() if len(values) == wanted]
        if whole:
            means = [fmean(values) for values in whole]
            sd = stdev(means) if len(means) > 1 else None
            within = [(first - second) ** 2 / 2 for first, second in whole] if way != "plain" else []
            repeat_sd = fmean(within) ** 0.5 if within else None
            rows.append(Scatter(variant, point, way, metric, len(whole), fmean(means), sd, repeat_sd))
    return rows


def scatter_elsewhere() -> list[Elsewhere]:
    """Of what was compared with itself, of every way."""
    itself = [one for one in committed() if one.variant == one.baseline]
    loads: dict[str, Scheme] = {one.point: one.way for one in itself if one.way != "plain"}
    return [
        Elsewhere(one.metric, None if one.way == "plain" else one.way, loads[one.point], _once(one) / 100, one.rounds)
        for one in scatter(itself)
        if one.sd is not None and one.point in loads
    ]


def _once(told: Scatter) -> float:
    """What a pair scatters by that is measured once, as a block's is: a round's mean is of REPEATS of one pair."""
    within = (told.repeat_sd or 0.0) ** 2
    return ((told.sd or 0.0) ** 2 + within * (1 - 1 / REPEATS)) ** 0.5


def _by_dose(found: Iterable[Compared]) -> dict[float, dict[int, list[Compared]]]:
    """Dose → round → its comparisons that count."""
    by_dose: dict[float, dict[int, list[Compared]]] = {}
    for one in found:
        if one.valid and one.dose:
            by_dose.setdefault(one.dose, {}).setdefault(one.round, []).append(one)
    return by_dose


def _told(rounds: Mapping[int, Sequence[Compared]], metric: str) -> list[float]:
    """Each round's effect, a fraction."""
    means = ([one.log_ratios[metric] for one in each if metric in one.log_ratios] for each in rounds.values())
    return [expm1(fmean(each)) for each in means if each]


def _means(told: Mapping[float, Sequence[float]]) -> dict[float, Floats]:
    """Dose → the mean over its rounds."""
    return {dose: np.mean(each) for dose, each in told.items()}


def _drawn(told: Mapping[float, Sequence[float]], lots: np.random.Generator) -> dict[float, Floats]:
    """The same of rounds drawn anew, DRAWS times: shape (DRAWS,)."""
    return {dose: lots.choice(each, (DRAWS, len(each))).mean(axis=1) for dose, each in told.items()}


def _per_dose(means: Mapping[float, Floats]) -> Floats:
    """Least squares through nothing."""
    return np.sum([dose * mean for dose, mean in means.items()], axis=0) / sum(dose**2 for dose in means)
