"""The order tests of a run: whether a metric, or a sample's validity, depends on what was measured before it.

Each sample has two labels: the load point that was measured before it on the same start of the system (bring-up), and whether the
proxy had opened many connections shortly before. The tests report a dependence with its numbers; they do not explain it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from math import exp, log
from statistics import fmean

from lab.analysis.aggregate.cells import ArmCell, Cells
from lab.base.grouping import group_values
from lab.model.leftovers import OPENED, PORT_SHARE, WAITING_S
from lab.model.metrics import find_metric
from lab.model.plan import Arm
from lab.model.samples import Reason, Sample, belongs_to_block
from lab.stats import paired as stats
from lab.stats.groups import LEAST_VALUES, compute_label_p, compute_shares_p

METRICS_TESTED = ("rate", "cpu_per_request", "p99")
"""The metrics that carry-over changed in the committed runs; other percentiles follow p99."""
ALPHA = 2e-3
"""The significance level of all order tests of a run together (Holm).

Together with Fisher's test and the clusters, at most 10 of 1,000 runs with ordinary noise are flagged by anything
(lab/tests/stats/test_method_simulation.py).
"""
MISSING_P = 0.01
"""The significance level of one point's test whether invalid samples depend on what was measured before."""
MANY_OPENED = 4000
"""The number of connections opened by the proxy shortly before a sample from which on they are many.

It is a seventh of Linux' 28,232 ephemeral ports. Fewer connections changed no committed sample.
"""
NOTHING = ""
"""The label of a sample that is the first of its bring-up."""
SYSTEM_NEVER_UP = {Reason.BRING_UP_FAILED, Reason.KNOB_NOT_APPLIED, Reason.LIMIT_NOT_APPLIED, Reason.BLOCK_INTERRUPTED}
"""The reasons that hold for a whole bring-up, so that its order plays no part."""


@dataclass(frozen=True, slots=True)
class OrderLabels:
    """The labels of a sample for order tests: what was measured before it on the same start of the system.

    Attributes:
        point: The name of the load point that was measured directly before; NOTHING if the sample was the first.
        many: True if the proxy had opened many connections shortly before.

    """

    point: str
    many: bool


@dataclass(frozen=True, slots=True)
class OrderTest:
    """An order test: whether a metric of one arm at one load depends on what was measured before the sample.

    Attributes:
        arm: The name of the arm (variant in the run).
        partner: The name of the arm on the other side of the pair (two arms measured at once); empty for an arm measured
            alone.
        point: The name of the load point.
        metric: The metric's name in the catalogue.
        by: The grouping of the samples. `point`: by the load point measured before. `connections`: by whether many or
            few connections were opened shortly before.
        means: Label of a group → (number of values, their geometric mean in the metric's own unit).
        p_value: The unadjusted p-value of this test.
        holm_p: The p-value adjusted by Holm's method over all tests of the run.

    """

    arm: str
    partner: str
    point: str
    metric: str
    by: str
    means: Mapping[str, tuple[int, float]]
    p_value: float
    holm_p: float = 1.0

    @property
    def text(self) -> str:
        """The phrase for people about an order test: arm (variant), load point, the metric's mean in each group, and p-values."""
        place = f"{self.arm}{f' beside {self.partner}' if self.partner else ''} at {self.point}"
        metric = find_metric(self.metric)
        parts = [
            f"{metric.with_unit(mean)} {_describe_label(label, self.by)} ({count} blocks)"
            for label, (count, mean) in self.means.items()
        ]
        return f"{metric.title} of {place}: {', '.join(parts)}, p {self.p_value:.1g}, Holm {self.holm_p:.1g}"


@dataclass(frozen=True, slots=True)
class MissingByOrder:
    """A load point at which the share of invalid samples depends on what was measured before.

    Attributes:
        point: The name of the load point.
        arms: The names of the arms (variants) with an invalid sample there.
        shares: Point measured before → (number of invalid samples, number of samples), the largest share first. Samples
            of all `arms` are counted.
        reasons: The reasons why the samples are invalid.
        p_value: The p-value of Fisher's exact test of whether the shares differ.

    """

    point: str
    arms: frozenset[str]
    shares: Mapping[str, tuple[int, int]]
    reasons: tuple[str, ...]
    p_value: float

    def concerns(self, arm: Arm) -> bool:
        """Return whether the arm (variant), or its baseline, has an invalid sample at the point."""
        return arm.name in self.arms or arm.baseline in self.arms

    @property
    def text(self) -> str:
        """The phrase for people about samples whose validity depends on the order: the shares, the reasons and the p-value.

        The shares read `13 of 13 after ceiling, 0 of 17 when first`, where `ceiling` is a load point.
        """
        parts = (f"{bad} of {total} {_describe_label(label, 'point')}" for label, (bad, total) in self.shares.items())
        message = f"samples are invalid by what was measured before: {', '.join(parts)}"
        return f"{message} ({', '.join(self.reasons)}; Fisher's exact test p {self.p_value:.1g})"


def _describe_label(label: str, by: str) -> str:
    if by == "connections":
        return f"after {label} connections"
    return f"after {label}" if label else "when first"


def label_by_predecessor(samples: Sequence[Sample]) -> dict[str, OrderLabels]:
    """Return sample id → labels of what was measured before the sample on the same start of the system.

    The predecessor of a retry is the failed attempt that it repeats.
    """
    labels: dict[str, OrderLabels] = {}
    in_order = sorted(samples, key=lambda sample: (_identify_system(sample), sample.order, sample.attempt))
    for _, group in groupby(in_order, key=_identify_system):
        earlier: list[Sample] = []
        for sample in group:
            last = next(
                (
                    candidate
                    for candidate in reversed(earlier)
                    if candidate.order < sample.order or candidate.arm == sample.arm
                ),
                None,
            )
            of_arm = [candidate for candidate in earlier if candidate.arm == sample.arm]
            labels[sample.id] = OrderLabels(
                last.point.name if last else NOTHING, _find_many_connections(sample, of_arm)
            )
            earlier.append(sample)
    return labels


def _identify_bring_up(sample: Sample) -> tuple[int, int, tuple[str, ...], str]:
    sides = tuple(sorted({sample.arm, sample.pair.against} if sample.pair else {sample.arm}))
    solo = "" if sample.pair else "solo"
    return sample.block, sample.generation, (*sides, solo), sample.point.name if sample.point.disturbance else ""


def _identify_system(sample: Sample) -> tuple[object, ...]:
    """Return a key that two samples share only if one running system, not restarted in between, produced both."""
    return _identify_bring_up(sample), sample.fresh_bring_ups


def _find_many_connections(sample: Sample, earlier: Sequence[Sample]) -> bool:
    """Return whether many connections were left from earlier loads when a sample began.

    If sockets in TIME_WAIT were counted at that moment, their number decides. Otherwise, the connections that the arm's
    earlier samples opened shortly before are counted.

    Args:
        sample: The sample.
        earlier: The earlier samples of the same arm on the same running system.

    """
    left = sample.leftovers.get("before")
    if left is not None and left.port_range:
        return any(
            sum(left.time_wait.get(place, {}).values()) >= PORT_SHARE * ports
            for place, ports in left.port_range.items()
        )
    opened, began = 0, datetime.fromisoformat(sample.started_at)
    for previous in earlier:
        waited = timedelta(seconds=WAITING_S + previous.point.warmup_s + (previous.duration_s or 0.0))
        if began - datetime.fromisoformat(previous.started_at) <= waited:
            opened += previous.counters.get(OPENED, 0)
    return opened > MANY_OPENED


def run_order_tests(cells: Cells, samples: Sequence[Sample]) -> list[OrderTest]:
    """Test whether metrics of a run's steady loads depend on what was measured before each sample.

    There is one test for each arm (variant), load point, metric and grouping of the samples. Solo samples (measured
    alone) and each side of pairs (two arms measured at once) are tested separately. The p-values are adjusted over all
    tests by Holm's method.

    Returns:
        The tests, the smallest p-value first.

    """
    before = label_by_predecessor([sample for sample in samples if belongs_to_block(sample)])
    sides = [(cell_, "") for cell_ in cells.cells.values() if cell_.arm.role != "reference"]
    for pair in cells.pairs.values():
        sides += [(pair.own, pair.base.arm.name), (pair.base, pair.own.arm.name)]
    steady = ((cell_, against) for cell_, against in sides if not cell_.point.has_outcome)
    return adjust_p_values([test for cell_, against in steady for test in _test_cell(cell_, against, before)])


def adjust_p_values(tests: Sequence[OrderTest]) -> list[OrderTest]:
    """Return the tests with p-values adjusted over all of them by Holm's method, the smallest p-value first."""
    adjusted = stats.adjust_by_holm([test.p_value for test in tests])
    results = [replace(test, holm_p=p) for test, p in zip(tests, adjusted, strict=True)]
    return sorted(results, key=lambda test: test.p_value)


def _test_cell(cell_: ArmCell, against: str, before: Mapping[str, OrderLabels]) -> Iterator[OrderTest]:
    for metric in (metric for metric in METRICS_TESTED if metric != "rate" or cell_.point.rate_rps is None):
        logs = {block: log(value) for block, value in cell_.known(metric).items() if block in cell_.counted}
        labels = [before[cell_.counted[block].id] for block in logs]
        tested: list[set[frozenset[int]]] = []
        for by, names in (
            ("point", [label.point for label in labels]),
            ("connections", ["many" if label.many else "few" for label in labels]),
        ):
            groups = group_values(zip(names, logs, strict=True))
            parts = {name: blocks for name, blocks in groups.items() if len(blocks) >= LEAST_VALUES}
            p_value = compute_label_p(list(logs.values()), names)
            # the same groups are not tested a second time under another name
            if p_value is not None and set(map(frozenset, parts.values())) not in tested:
                means = {
                    name: (len(blocks), exp(fmean(logs[block] for block in blocks))) for name, blocks in parts.items()
                }
                yield OrderTest(cell_.arm.name, against, cell_.point.name, metric, by, means, p_value)
            tested.append(set(map(frozenset, parts.values())))


def format_order_note(tests: Sequence[OrderTest]) -> str:
    """Return the note on whether a run's results depend on the order of measurement, according to its order tests.

    An order test examines whether a metric depends on what was measured before the sample. The note has the most
    significant dependence, or the statement that no metric depends on it.

    Args:
        tests: The order tests, the smallest p-value first. Without any test the note is empty.

    """
    significant = [test for test in tests if test.holm_p <= ALPHA]
    further = f"; and {len(significant) - 1} more of {len(tests)} tests" if len(significant) > 1 else ""
    if significant:
        return f"order: what was measured before changes a result: {significant[0].text}{further}"
    least = f"smallest Holm-adjusted p {tests[0].holm_p:.2g} of {len(tests)} tests" if tests else ""
    return f"order: no metric depends on what was measured before ({least})" if tests else ""


def find_missing_by_order(samples: Sequence[Sample]) -> dict[str, MissingByOrder]:
    """Find the load points at which the validity of samples depends on what was measured before them.

    Fisher's exact test decides (p < MISSING_P). It uses one sample of each arm (or pair of arms) for each start of a
    system: the first attempt that the machine did not spoil. Later attempts exist only if that one failed. Systems that
    never came up are left out, because the order did not cause that. At each point, arms without an invalid sample are
    left out, which only makes the test more conservative.

    Args:
        samples: All samples of a run.

    Returns:
        Name of the load point → how its invalid samples depend on what was measured before, only for points where they
        do.

    """
    steady = [
        sample
        for sample in samples
        if not sample.point.has_outcome and belongs_to_block(sample) and sample.role != "reference"
    ]
    before = label_by_predecessor(steady)
    by_point: dict[str, dict[tuple[object, ...], list[Sample]]] = {}
    labels: dict[tuple[object, ...], str] = {}
    for sample in sorted(steady, key=lambda sample: (sample.order, sample.attempt)):
        if sample.pair is None or (sample.pair.reload, sample.pair.repeat) == (0, 0):
            unit = *_identify_bring_up(sample), sample.point.name
            labels.setdefault(unit, before[sample.id].point)
            tried = by_point.setdefault(sample.point.name, {}).setdefault(unit, [])
            spoiled = sample.reason is not None and sample.reason.environmental
            if not spoiled and not any(attempt.attempt < sample.attempt for attempt in tried):
                tried.append(sample)
    missing: dict[str, MissingByOrder] = {}
    for point, ended in by_point.items():
        units = {
            unit: tried
            for unit, tried in ended.items()
            if tried and not any(attempt.reason in SYSTEM_NEVER_UP for attempt in tried)
        }
        bad = {unit for unit, tried in units.items() if not all(attempt.valid for attempt in tried)}
        sides = {unit[2] for unit in bad}
        by_label = group_values((labels[unit], unit in bad) for unit in units if unit[2] in sides)
        shares = {label: (sum(are_bad), len(are_bad)) for label, are_bad in by_label.items()}
        p_value = compute_shares_p(*zip(*shares.values(), strict=True)) if len(shares) > 1 else 1.0
        if p_value < MISSING_P:
            lost = [attempt for unit in bad for attempt in units[unit] if not attempt.valid]
            reasons = tuple(dict.fromkeys(str(attempt.reason) for attempt in lost))
            ordered = dict(sorted(shares.items(), key=lambda item: -item[1][0] / item[1][1]))
            missing[point] = MissingByOrder(
                point, frozenset(attempt.arm for attempt in lost), ordered, reasons, p_value
            )
    return missing
