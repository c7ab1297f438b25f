"""The variation of one block and of one start of a system, by the committed variance components (data/levels).

Variance components are standard deviations of a system's CPU per request between repeats, between generations of worker
processes (the workers between two reloads), and between bring-ups (starts from nothing). A system without committed
components (`lab.records.levels`) has no result. `lab/experiments/bench` decides what is planned with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import hypot, sqrt

from lab.model.pairs import Scheme
from lab.records.levels import SystemComponents, read_components

WORTHWHILE = 1.5
"""The ratio of workers' to repeats' standard deviation up to which there is no reason to make other workers."""
BOUNDING, SHARE = 30, 0.1
"""The number of starts of a system, and the share of variance, from which each worker generation is a value of its own.

In at least so many starts, the variance that the generations of one start share must be below that part of the variance
of its mean. An interval is then at most a twentieth too narrow.
"""
LONG_S = 4.0
"""The approximate seconds of a measurement with which the standard deviation of a start is compared in a note."""


def find_components(target: str, variants: Collection[str], scheme: Scheme) -> SystemComponents | None:
    """Return the committed variance components of the variant whose worker generations vary most, on one target.

    A worker generation is the worker processes between two reloads. Components that were measured without repeats are
    left out, because their standard deviation between generations includes that between repeats.

    Args:
        target: The target.
        variants: The variants to choose from.
        scheme: The kind of pair (two arms measured at once) for which the components must have been measured.

    Returns:
        The components; None if none are committed for the target, the scheme and any of the variants.

    """
    fitting = [
        component
        for component in _select_committed(target, variants)
        if component.scheme == scheme and component.repeat is not None
    ]
    return max(fitting, key=lambda component: component.generation or 0.0, default=None)


def _select_committed(target: str, variants: Collection[str]) -> list[SystemComponents]:
    return [
        component for component in read_components() if component.target == target and component.variant in variants
    ]


def counts_singly(component: SystemComponents, generations: int, load_s: float) -> bool:
    """Return whether each worker generation counts as a separate value in statistics, instead of one mean for each bring-up.

    A worker generation is the worker processes between two reloads; a bring-up is one start of the system. All
    generations of one bring-up have the difference between bring-ups in common. So they are separate values only if the
    variance between bring-ups is at most a small part (SHARE) of that within them. To know this, at least BOUNDING
    bring-ups must have been measured.

    Args:
        component: The system's variance components.
        generations: The number of worker generations in each bring-up.
        load_s: The seconds for which each generation is measured.

    """
    starts, (_, *lower) = find_starts(component), _list_parts(component, generations, load_s)
    bound = starts.bring_up_at_most if starts.bring_ups >= BOUNDING else None
    return bound is not None and bound**2 < SHARE * sum(variance for variance, _ in lower)


def find_starts(component: SystemComponents) -> SystemComponents:
    """Return the committed variance components that were measured over the most starts of the same system.

    Only components of the same kind of pair (two variants measured at once) and the same load are considered, including
    the given ones. The more starts (bring-ups) were measured, the better it is known how much they vary.
    """
    same = [
        candidate
        for candidate in _select_committed(component.target, {component.variant})
        if (candidate.scheme, candidate.point) == (component.scheme, component.point)
    ]
    return max([component, *same], key=lambda candidate: candidate.bring_ups)


def _list_parts(component: SystemComponents, generations: int, load_s: float) -> list[tuple[float, int]]:
    """Return the three parts of the variance of a system's mean in one block: from bring-up, generation and repeat.

    A block (repetition) has one bring-up (start of the system) with several worker generations (the worker processes
    between two reloads).

    Args:
        component: The system's variance components.
        generations: The number of worker generations in the mean.
        load_s: The seconds for which each generation is measured.

    Returns:
        (variance, degrees of freedom of this variance) of the bring-up, the generations and the repeats, in this order.

    """
    starts = find_starts(component)
    return [
        ((starts.bring_up or 0.0) ** 2, starts.bring_ups - 1),
        ((component.generation or 0.0) ** 2 / generations, component.bring_ups * (component.generations - 1)),
        (repeat_sd(component, load_s) ** 2 / generations, component.bring_ups * component.generations),
    ]


def repeat_sd(component: SystemComponents, load_s: float) -> float:
    """Return the standard deviation of the logarithm of CPU time per request between repeats of a given length.

    It is converted from the committed standard deviation: the variance is inversely proportional to the length of a
    measurement.

    Args:
        component: The system's variance components.
        load_s: The seconds of each measurement.

    """
    return (component.repeat or 0.0) * sqrt(component.load_s / load_s)


def compute_sd(component: SystemComponents, generations: int, load_s: float, singly: bool = False) -> tuple[float, int]:
    """Compute the standard deviation of the log-ratio of two systems with the same variance components.

    The log-ratio is that of the means over a block's worker generations or, with `singly`, of a single generation. The
    degrees of freedom follow from those of the components (Satterthwaite 1946, Biometrics 2:110), and are at least 1.

    Args:
        component: The variance components of one system.
        generations: The number of worker generations (the worker processes between two reloads) in a block
            (repetition).
        load_s: The seconds for which each generation is measured, once.
        singly: True for the standard deviation of a single generation.

    Returns:
        (standard deviation, number of blocks of a pilot run that would give it with the same certainty).

    """
    parts = _list_parts(component, 1 if singly else generations, load_s)
    total = sum(variance for variance, _ in parts)
    weighted = sum(variance**2 / freedom for variance, freedom in parts if freedom)
    degrees = max(1.0, total**2 / weighted) if weighted else float(max(1, component.bring_ups - 1))
    return sqrt(2 * total), round(degrees) + 1


def start_sd(component: SystemComponents) -> float:
    """Return the standard deviation between starts of a system: of worker generations and bring-ups combined.

    A worker generation is the worker processes between two reloads, a bring-up a start from nothing. All measurements
    of one start share this deviation, however long they take.
    """
    return hypot(component.generation or 0.0, find_starts(component).bring_up or 0.0)


def list_start_notes(target: str, variants: Collection[str]) -> Iterator[str]:
    """Yield a note for each variant whose starts vary much more than its repeated measurements, on one target.

    Args:
        target: The target.
        variants: The names of the variants. Those without committed variance components get no note.

    """
    for component in _select_committed(target, variants):
        start = start_sd(component)
        if component.repeat is not None and start > WORTHWHILE * repeat_sd(component, LONG_S):
            message = f"{component.variant}: one start of it varies by {100 * start:.1f} % in CPU per request (standard deviation, {component.scheme}; {component.run})"
            yield f"{message}, however long it is measured: starts and reloads must be repeated"
