"""What is committed of a system's levels of scatter (data/levels): what a block of it scatters by, and what one start of it is off by.

Refuses to tell what was not measured: of a system without committed levels (`lab.records.levels`) nothing is known. What is planned by them
is decided in `lab/experiments/bench/design.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from math import hypot, sqrt

from lab.model.pairs import Scheme
from lab.records.levels import Known, committed

WORTHWHILE = 1.5
"""Workers that differ by no more than this many times what a repeat under the same load does are no reason to make others."""
BOUNDING, SHARE = 30, 0.1
"""Generations count singly where so many bring-ups or more bound what those of one share, as a variance, below that part of a bring-up's
mean: an interval is then at most a twentieth too narrow.
"""
LONG_S = 4.0
"""A measurement of one start, about, where it is told what that start is off by however long it is measured."""


def known(target: str, variants: Collection[str], scheme: Scheme) -> Known | None:
    """Of these that there alone are compared, the one whose workers scatter most; None where none is known.

    What was not repeated has its repeats' scatter in its workers', and is no guide.
    """
    fitting = [one for one in _of(target, variants) if one.scheme == scheme and one.repeat is not None]
    return max(fitting, key=lambda one: one.generation or 0.0, default=None)


def _of(target: str, variants: Collection[str]) -> list[Known]:
    return [one for one in committed() if one.target == target and one.variant in variants]


def counts_singly(one: Known, generations: int, load_s: float) -> bool:
    """Whether each of so many generations of a bring-up, measured for so long, is a value of its own (BOUNDING, SHARE)."""
    starts, (_, *below) = starts_of(one), _parts(one, generations, load_s)
    bound = starts.bring_up_at_most if starts.bring_ups >= BOUNDING else None
    return bound is not None and bound**2 < SHARE * sum(variance for variance, _ in below)


def starts_of(one: Known) -> Known:
    """The same system's line of the most bring-ups, which knows best what they scatter by."""
    same = [each for each in _of(one.target, {one.variant}) if (each.scheme, each.point) == (one.scheme, one.point)]
    return max([one, *same], key=lambda each: each.bring_ups)


def _parts(one: Known, generations: int, load_s: float) -> list[tuple[float, int]]:
    """Of one system's block, each level's (variance, degrees of freedom that it is known with)."""
    starts = starts_of(one)
    return [
        ((starts.bring_up or 0.0) ** 2, starts.bring_ups - 1),
        ((one.generation or 0.0) ** 2 / generations, one.bring_ups * (one.generations - 1)),
        (repeat_sd(one, load_s) ** 2 / generations, one.bring_ups * one.generations),
    ]


def repeat_sd(one: Known, load_s: float) -> float:
    """A repeat's standard deviation under a load of so long: its variance is as one over the time."""
    return (one.repeat or 0.0) * sqrt(one.load_s / load_s)


def scatter(one: Known, generations: int, load_s: float, singly: bool = False) -> tuple[float, int]:
    """Return (standard deviation, pilot blocks that know it as well) of what counts as one value: a generation, or a block of so many.

    The standard deviation is of the log-ratio of two such systems, each generation measured once for `load_s`. It is known with as many
    degrees of freedom as its levels together, of which each variance has its own (Satterthwaite 1946, Biometrics 2:110), and at least 1.
    """
    parts = _parts(one, 1 if singly else generations, load_s)
    total = sum(variance for variance, _ in parts)
    own = sum(variance**2 / freedom for variance, freedom in parts if freedom)
    degrees = max(1.0, total**2 / own) if own else float(max(1, one.bring_ups - 1))
    return sqrt(2 * total), round(degrees) + 1


def start_sd(one: Known) -> float:
    """What one start of it is off by for ever after: its workers and its bring-up together."""
    return hypot(one.generation or 0.0, starts_of(one).bring_up or 0.0)


def notes(target: str, variants: Collection[str]) -> list[str]:
    """What one start of each can be off by, where that is known and more than a repeat is."""
    found: list[str] = []
    for one in _of(target, variants):
        start = start_sd(one)
        if one.repeat is not None and start > WORTHWHILE * repeat_sd(one, LONG_S):
            said = f"{one.variant}: one start of it is off by {100 * start:.1f} % in CPU per request (standard deviation, {one.scheme}; {one.run})"
            found.append(f"{said}, however long it is measured: starts and reloads must be repeated")
    return found
