"""The committed variance components of systems (data/levels): how much a block and one start of a system vary.

A system without committed components (`lab.records.levels`) gets no answer. What is planned with them is decided in
`lab/experiments/bench/design.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from math import hypot, sqrt

from lab.model.pairs import Scheme
from lab.records.levels import SystemComponents, read_components

WORTHWHILE = 1.5
"""The ratio of workers' to repeats' standard deviation up to which there is no reason to make other workers."""
BOUNDING, SHARE = 30, 0.1
"""The number of bring-ups, and the share of variance, that let generations count singly.

So many bring-ups or more must bound the variance that the generations of a bring-up share below that part of the
variance of its mean. An interval is then at most a twentieth too narrow.
"""
LONG_S = 4.0
"""The approximate seconds of a measurement with which the standard deviation of a start is compared in a note."""


def find_components(target: str, variants: Collection[str], scheme: Scheme) -> SystemComponents | None:
    """Return the committed components of the variant whose workers vary most, among these variants on a target.

    None where none is committed for this scheme. Components without repeats are left out: their workers' standard
    deviation contains that of repeats.
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
    """Return whether each of so many generations of a bring-up counts as a value (BOUNDING, SHARE).

    `load_s`: the seconds for which each is measured.
    """
    starts, (_, *lower) = find_starts(component), _list_parts(component, generations, load_s)
    bound = starts.bring_up_at_most if starts.bring_ups >= BOUNDING else None
    return bound is not None and bound**2 < SHARE * sum(variance for variance, _ in lower)


def find_starts(component: SystemComponents) -> SystemComponents:
    """Return the same system's components with the most bring-ups, which know best how much these vary."""
    same = [
        candidate
        for candidate in _select_committed(component.target, {component.variant})
        if (candidate.scheme, candidate.point) == (component.scheme, component.point)
    ]
    return max([component, *same], key=lambda candidate: candidate.bring_ups)


def _list_parts(component: SystemComponents, generations: int, load_s: float) -> list[tuple[float, int]]:
    """Return (variance, its degrees of freedom) of bring-up, generation and repeat in one system's block."""
    starts = find_starts(component)
    return [
        ((starts.bring_up or 0.0) ** 2, starts.bring_ups - 1),
        ((component.generation or 0.0) ** 2 / generations, component.bring_ups * (component.generations - 1)),
        (repeat_sd(component, load_s) ** 2 / generations, component.bring_ups * component.generations),
    ]


def repeat_sd(component: SystemComponents, load_s: float) -> float:
    """Return a repeat's standard deviation under a load of `load_s` seconds.

    Its variance is inversely proportional to the time.
    """
    return (component.repeat or 0.0) * sqrt(component.load_s / load_s)


def compute_sd(component: SystemComponents, generations: int, load_s: float, singly: bool = False) -> tuple[float, int]:
    """Return (standard deviation, number of pilot blocks that would know it as well) of what counts as one value.

    A value is a block of so many generations, or a single generation. The standard deviation is that of the log-ratio of
    two such systems, with each generation measured once for `load_s` seconds. Its degrees of freedom are those of its
    components together, of which each variance has its own (Satterthwaite 1946, Biometrics 2:110), and at least 1.
    """
    parts = _list_parts(component, 1 if singly else generations, load_s)
    total = sum(variance for variance, _ in parts)
    weighted = sum(variance**2 / freedom for variance, freedom in parts if freedom)
    degrees = max(1.0, total**2 / weighted) if weighted else float(max(1, component.bring_ups - 1))
    return sqrt(2 * total), round(degrees) + 1


def start_sd(component: SystemComponents) -> float:
    """Return the standard deviation of one start, shared by all its measurements: workers and bring-up together."""
    return hypot(component.generation or 0.0, find_starts(component).bring_up or 0.0)


def list_start_notes(target: str, variants: Collection[str]) -> list[str]:
    """Return a note for each variant whose starts are known to vary more than its repeats."""
    results: list[str] = []
    for component in _select_committed(target, variants):
        start = start_sd(component)
        if component.repeat is not None and start > WORTHWHILE * repeat_sd(component, LONG_S):
            message = f"{component.variant}: one start of it varies by {100 * start:.1f} % in CPU per request (standard deviation, {component.scheme}; {component.run})"
            results.append(f"{message}, however long it is measured: starts and reloads must be repeated")
    return results
