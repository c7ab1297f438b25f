"""Samples in their order → does a metric depend on what was measured before, and are samples invalid because of it?

Each sample is labelled by the point measured before it in its bring-up, and by whether many connections had been opened there shortly
before. Refuses to say why: a dependence is named with its numbers, and the mechanism is for who reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from math import exp, log
from statistics import fmean

from lab.analysis.aggregate.cells import Cell, Cells
from lab.model.leftovers import OPENED, PORT_SHARE, WAITING_S
from lab.model.metrics import about
from lab.model.plan import Arm
from lab.model.samples import Reason, Sample, counts
from lab.stats import paired as stats
from lab.stats.groups import LEAST, label_p, shares_p

METRICS_TESTED = ("rate", "cpu_per_request", "p99")
"""What carry-over changed in the committed runs. Other percentiles follow p99."""
ALPHA = 2e-3
"""Significance level of all order tests of a run together (Holm). With Fisher's test and the clusters at most 10 of 1,000 runs with
ordinary noise are flagged by anything (lab/tests/stats/test_method_simulation.py)."""
MISSING_P = 0.01
"""Significance level of one point's test whether invalid samples depend on what was measured before."""
MANY_OPENED = 4000
"""Connections opened by the proxy in that time from which on they are many: a seventh of Linux' 28,232 ephemeral ports. Below that no
committed sample was changed by them."""
NOTHING = ""
"""The label of a sample that is the first of its bring-up."""
SYSTEM_NEVER_UP = {Reason.BRING_UP_FAILED, Reason.KNOB_NOT_APPLIED, Reason.LIMIT_NOT_APPLIED, Reason.BLOCK_INTERRUPTED}
"""Reasons that hold for a whole bring-up, whatever its order is."""


@dataclass(frozen=True, slots=True)
class Before:
    """What was measured before a sample in its bring-up: the point (NOTHING: it was the first), and whether many connections."""

    point: str
    many: bool


@dataclass(frozen=True, slots=True)
class OrderTest:
    """One metric of one arm at one point, compared by what was measured before.

    `by`: "point" or "connections". `means`: label → (values, geometric mean in the metric's unit). `beside`: the arm on a pair's other
    side, empty where the arm was solo. `holm_p` is adjusted over all tests of the run.
    """

    arm: str
    beside: str
    point: str
    metric: str
    by: str
    means: Mapping[str, tuple[int, float]]
    p_value: float
    holm_p: float = 1.0

    @property
    def text(self) -> str:
        """One phrase for people: where, and what the metric was after what."""
        where = f"{self.arm}{f' beside {self.beside}' if self.beside else ''} at {self.point}"
        metric = about(self.metric)
        parts = [
            f"{metric.with_unit(mean)} {_after(label, self.by)} ({count} blocks)"
            for label, (count, mean) in self.means.items()
        ]
        return f"{metric.title} of {where}: {', '.join(parts)}, p {self.p_value:.1g}, Holm {self.holm_p:.1g}"


@dataclass(frozen=True, slots=True)
class MissingByOrder:
    """At one point the share of invalid samples depends on what was measured before, pooled over `arms` (those with an invalid one).

    `shares`: label → (invalid samples, samples), the largest share first.
    """

    point: str
    arms: frozenset[str]
    shares: Mapping[str, tuple[int, int]]
    reasons: tuple[str, ...]
    p_value: float

    def concerns(self, arm: Arm) -> bool:
        """Return whether samples of the arm or of its baseline are among them."""
        return arm.name in self.arms or arm.baseline in self.arms

    @property
    def text(self) -> str:
        """`13 of 13 after ceiling, 0 of 17 first: dropped; Fisher's exact test p 8e-09`."""
        parts = (f"{bad} of {total} {_after(label, 'point')}" for label, (bad, total) in self.shares.items())
        said = f"samples are invalid by what was measured before: {', '.join(parts)}"
        return f"{said} ({', '.join(self.reasons)}; Fisher's exact test p {self.p_value:.1g})"


def _after(label: str, by: str) -> str:
    if by == "connections":
        return f"after {label} connections"
    return f"after {label}" if label else "when first"


def befores(samples: Sequence[Sample]) -> dict[str, Before]:
    """Return sample id → what was measured before it in its bring-up. A retry's predecessor is the sample that it repeats."""
    found: dict[str, Before] = {}
    in_order = sorted(samples, key=lambda each: (_system(each), each.order, each.attempt))
    for _, group in groupby(in_order, key=_system):
        earlier: list[Sample] = []
        for sample in group:
            last = next((one for one in reversed(earlier) if one.order < sample.order or one.arm == sample.arm), None)
            mine = [one for one in earlier if one.arm == sample.arm]
            found[sample.id] = Before(last.point.name if last else NOTHING, _has_many(sample, mine))
            earlier.append(sample)
    return found


def _bring_up(sample: Sample) -> tuple[int, int, tuple[str, ...], str]:
    sides = tuple(sorted({sample.arm, sample.pair.against} if sample.pair else {sample.arm}))
    solo = "" if sample.pair else "solo"
    return sample.block, sample.generation, (*sides, solo), sample.point.name if sample.point.disturbance else ""


def _system(sample: Sample) -> tuple[object, ...]:
    """Return what samples of one running system have in common: a bring-up, until it is replaced by a fresh one."""
    return _bring_up(sample), sample.fresh_bring_ups


def _has_many(sample: Sample, earlier: Sequence[Sample]) -> bool:
    """Whether many connections were left when it began, as counted then, or as opened shortly before where nobody counted."""
    left = sample.leftovers.get("before")
    if left is not None and left.port_range:
        return any(
            sum(left.time_wait.get(place, {}).values()) >= PORT_SHARE * ports
            for place, ports in left.port_range.items()
        )
    opened, began = 0, datetime.fromisoformat(sample.started_at)
    for one in earlier:
        waited = timedelta(seconds=WAITING_S + one.point.warmup_s + (one.duration_s or 0.0))
        if began - datetime.fromisoformat(one.started_at) <= waited:
            opened += one.counters.get(OPENED, 0)
    return opened > MANY_OPENED


def run_order_tests(cells: Cells, samples: Sequence[Sample]) -> list[OrderTest]:
    """Return every order test of a run's steady loads, Holm-adjusted over all of them: solo samples and each side of pairs."""
    before = befores([sample for sample in samples if counts(sample)])
    sides = [(cell_, "") for cell_ in cells.cells.values() if cell_.arm.role != "reference"]
    for pair in cells.pairs.values():
        sides += [(pair.own, pair.base.arm.name), (pair.base, pair.own.arm.name)]
    steady = ((cell_, beside) for cell_, beside in sides if cell_.point.disturbance is None)
    return adjust([test for cell_, beside in steady for test in _of_cell(cell_, beside, before)])


def adjust(tests: Sequence[OrderTest]) -> list[OrderTest]:
    """Return the tests with their Holm-adjusted p-values, the smallest first."""
    adjusted = stats.holm([one.p_value for one in tests])
    found = [replace(one, holm_p=p) for one, p in zip(tests, adjusted, strict=True)]
    return sorted(found, key=lambda one: one.p_value)


def _of_cell(cell_: Cell, beside: str, before: Mapping[str, Before]) -> Iterator[OrderTest]:
    for metric in METRICS_TESTED:
        if metric == "rate" and cell_.point.rate_rps is not None:
            continue
        known = {block: log(value) for block, value in cell_.known(metric).items() if block in cell_.counted}
        labels = [before[cell_.counted[block].id] for block in known]
        seen: list[set[frozenset[int]]] = []
        for by, names in (
            ("point", [one.point for one in labels]),
            ("connections", ["many" if one.many else "few" for one in labels]),
        ):
            groups: dict[str, list[int]] = {}
            for block, name in zip(known, names, strict=True):
                groups.setdefault(name, []).append(block)
            parts = {name: blocks for name, blocks in groups.items() if len(blocks) >= LEAST}
            p_value = label_p(list(known.values()), names)
            if p_value is not None and set(map(frozenset, parts.values())) not in seen:  # under another name
                means = {
                    name: (len(blocks), exp(fmean(known[block] for block in blocks))) for name, blocks in parts.items()
                }
                yield OrderTest(cell_.arm.name, beside, cell_.point.name, metric, by, means, p_value)
            seen.append(set(map(frozenset, parts.values())))


def order_note(tests: Sequence[OrderTest]) -> str:
    """Return a run's line about its order test; empty where nothing could be compared."""
    found = [one for one in tests if one.holm_p <= ALPHA]
    more = f"; and {len(found) - 1} more of {len(tests)} tests" if len(found) > 1 else ""
    if found:
        return f"order: what was measured before changes a result: {found[0].text}{more}"
    least = f"smallest Holm-adjusted p {tests[0].holm_p:.2g} of {len(tests)} tests" if tests else ""
    return f"order: no metric depends on what was measured before ({least})" if tests else ""


def find_missing_by_order(samples: Sequence[Sample]) -> dict[str, MissingByOrder]:
    """Return point → how its invalid samples depend on what was measured before (Fisher's exact test, p < MISSING_P).

    Each arm, or pair of arms, counts once for each bring-up, by its first attempt that the machine did not spoil: later ones were only
    made because of an earlier one. What never came up is left out, as that is no doing of the order. Arms without an invalid sample at a
    point are left out there, which only makes the test more conservative.
    """
    steady = [one for one in samples if one.point.disturbance is None and counts(one) and one.role != "reference"]
    before = befores(steady)
    by_point: dict[str, dict[tuple[object, ...], list[Sample]]] = {}
    labels: dict[tuple[object, ...], str] = {}
    for sample in sorted(steady, key=lambda each: (each.order, each.attempt)):
        if sample.pair is None or (sample.pair.reload, sample.pair.repeat) == (0, 0):
            unit = *_bring_up(sample), sample.point.name
            labels.setdefault(unit, before[sample.id].point)
            tried = by_point.setdefault(sample.point.name, {}).setdefault(unit, [])
            spoiled = sample.reason is not None and sample.reason.environmental
            if not spoiled and not any(one.attempt < sample.attempt for one in tried):
                tried.append(sample)
    found: dict[str, MissingByOrder] = {}
    for point, ended in by_point.items():
        units = {
            unit: tried
            for unit, tried in ended.items()
            if tried and not any(one.reason in SYSTEM_NEVER_UP for one in tried)
        }
        bad = {unit for unit, tried in units.items() if not all(one.valid for one in tried)}
        sides, shares = {unit[2] for unit in bad}, dict[str, tuple[int, int]]()
        for unit in (unit for unit in units if unit[2] in sides):
            invalid, total = shares.get(labels[unit], (0, 0))
            shares[labels[unit]] = invalid + (unit in bad), total + 1
        p_value = shares_p(*zip(*shares.values(), strict=True)) if len(shares) > 1 else 1.0
        if p_value < MISSING_P:
            lost = [one for unit in bad for one in units[unit] if not one.valid]
            reasons = tuple(dict.fromkeys(str(one.reason) for one in lost))
            ordered = dict(sorted(shares.items(), key=lambda item: -item[1][0] / item[1][1]))
            found[point] = MissingByOrder(point, frozenset(one.arm for one in lost), ordered, reasons, p_value)
    return found
