"""What pairs showed of known costs and of nothing, as committed → whether a pair may say *same*, and what a plan may promise elsewhere.

Refuses to believe a pair of what was not measured: a metric and scheme without known costs recovers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import expm1
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

from lab.model.pairs import REPEATS, WAYS, Compared, Scheme, Way
from lab.records.levels import committed_pairs

LEAST_SLOPE = 0.8
"""The lower 95 % limit of what is paired on what is injected, from which on a pair may say *same*."""
DRAWS, SEED = 2000, 2511


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
    lots, slopes = np.random.default_rng(SEED), list[npt.NDArray[np.float64]]()
    for each in (way, "plain"):
        doses: dict[float, dict[int, list[float]]] = {}
        for one in found:
            if one.way == each and one.point in points and one.valid and one.dose and metric in one.log_ratios:
                doses.setdefault(one.dose, {}).setdefault(one.round, []).append(one.log_ratios[metric])
        told = {dose: [expm1(fmean(logs)) for logs in rounds.values()] for dose, rounds in doses.items()}
        drawn = {
            dose: lots.choice(effects, (DRAWS, len(effects))).mean(axis=1)
            for dose, effects in told.items()
            if len(effects) > 1
        }
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
