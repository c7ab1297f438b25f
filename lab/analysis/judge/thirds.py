"""The effect in each third of a sustained sample (a load of minutes): what lasts, and what only the first seconds show.

Rates, CPU seconds per request and effects can be computed for any part of such a sample, from its usage second by second.
The requests are estimated from the bytes that the backend sent, or in older samples from the backend's CPU time. Every text
about such a sample has a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl

from lab.analysis.aggregate.cells import UnsteadyArm, find_unsteadiness
from lab.analysis.judge.decision import ALPHA, Decision
from lab.analysis.judge.effects import Effect
from lab.model.metrics import find_metric
from lab.model.samples import Sample
from lab.records.store import RunStore
from lab.stats import paired as stats

BURST_S = 2.0
"""The first seconds, which are shown in addition to the thirds.

In the committed samples with waiting ports, the ports were used up after them.
"""
THIRDS = 3
Source = Literal["sent-bytes", "backend-cpu"]
STAND_IN: Mapping[Source, str] = {
    "sent-bytes": "; rates by the bytes that the backend sent per second, which stand for the requests",
    "backend-cpu": "; rates by the backend's CPU time per second, which stands for the requests",
}

SecondsOf = Callable[[Sample], "RunningTotals | None"]


@dataclass(frozen=True, slots=True)
class RunningTotals:
    """The running totals of requests and CPU time within one sample, at n moments.

    Attributes:
        t_s: The n moments in seconds since the load began, ascending.
        requests: The requests answered until each moment, estimated (see `source`).
        cpu_s: The CPU seconds used until each moment by the proxy, or by the backend if there is no proxy.
        source: What the requests are estimated from: the backend's sent bytes (`sent-bytes`) or CPU time
            (`backend-cpu`).

    """

    t_s: Sequence[float]
    requests: Sequence[float]
    cpu_s: Sequence[float]
    source: Source

    def between(self, begin_s: float, end_s: float) -> dict[str, float]:
        """Return the metrics `rate` (requests per second) and `cpu_per_request` (CPU seconds) between two moments of a sample.

        A metric is left out if it is not above 0.

        Args:
            begin_s: The first moment, in seconds since the load began.
            end_s: The second moment.

        """
        requests, cpu_s = (
            float(np.diff(np.interp([begin_s, end_s], self.t_s, values))[0]) for values in (self.requests, self.cpu_s)
        )
        metrics = {"rate": requests / (end_s - begin_s)} if requests > 0 else {}
        return metrics | ({"cpu_per_request": cpu_s / requests} if requests > 0 and cpu_s > 0 else {})

    def thirds(self) -> list[dict[str, float]]:
        """Return `rate` (requests per second) and `cpu_per_request` (CPU seconds) for each third of the sample's time."""
        edges = np.linspace(self.t_s[0], self.t_s[-1], THIRDS + 1)
        return [self.between(float(begin), float(end)) for begin, end in pairwise(edges)]

    def burst(self) -> dict[str, float]:
        """Return `rate` (requests per second) and `cpu_per_request` (CPU seconds) for the sample's first `BURST_S` seconds."""
        return self.between(self.t_s[0], self.t_s[0] + BURST_S)


def read_running_totals(sample: Sample, usage: pl.DataFrame) -> RunningTotals | None:
    """Read the running totals of requests and CPU time within a sample.

    The requests are estimated from the bytes that the backend sent, or else from its CPU time.

    Args:
        sample: The sample.
        usage: The table with the usage of the sample's processes over time.

    Returns:
        The running totals; None if the usage was recorded too seldom, or if the sample's number of requests is unknown.

    """
    used = {role: _sum_usage(usage, role, "cpu_s") for role in ("proxy", "backend")}
    totals = used["proxy"] or used["backend"]
    if len(totals) <= THIRDS or not sample.requests:
        return None
    t_s, cpu_s = zip(*totals.items(), strict=True)
    sent = _sum_usage(usage, "backend", "sent_bytes") if "sent_bytes" in usage.columns else {}
    work, source = (sent, "sent-bytes") if any(sent.values()) else (used["backend"], "backend-cpu")
    total = next(reversed(work.values()), 0.0)
    if total <= 0:
        return None
    requests = np.interp(t_s, list(work), list(work.values())) * (sample.requests / total)
    return RunningTotals(t_s, [float(count) for count in requests], cpu_s, source)


def make_totals_reader(run: RunStore) -> SecondsOf:
    """Return a function that reads the running totals of requests and CPU time within a given sample of a stored run."""
    return lambda sample: read_running_totals(sample, run.usage(sample))


def _sum_usage(usage: pl.DataFrame, role: str, column: str) -> dict[float, float]:
    """Return moment (s) → what all processes of a role together had used or sent since the first record.

    Args:
        usage: The usage table of a sample.
        role: The role of the processes: `proxy` or `backend`.
        column: The column to sum: `cpu_s` (CPU seconds) or `sent_bytes`.

    """
    selected = (pl.col("role") == role) & pl.col("tid").is_null() & pl.col(column).is_not_null()
    processes = usage.filter(selected).sort("t_s")
    increase = pl.col(column).cast(pl.Float64).diff().over("pid").fill_null(0.0)
    sums = processes.with_columns(more=increase).group_by("t_s").agg(pl.col("more").sum()).sort("t_s")
    return dict(zip(sums["t_s"].to_list(), sums["more"].cum_sum().to_list(), strict=True))


@dataclass(frozen=True, slots=True)
class Thirds:
    """The effects of an arm (variant) against its baseline in each third of the time of sustained samples (loads of minutes).

    Attributes:
        parts: Metric → the effects in the first, second and last third of the samples.
        burst: Metric → the effect in the first `BURST_S` seconds.
        source: What the requests of each second are estimated from (`RunningTotals.source`): the least exact source of
            all samples.

    """

    parts: Mapping[str, tuple[stats.Estimate, ...]]
    burst: Mapping[str, stats.Estimate]
    source: Source

    def holds(self, metric: str, effect: float) -> Literal["holds", "changes", "open"] | None:
        """Return whether each third of the samples' time confirms the effect over their whole time.

        Args:
            metric: The metric's name in the catalogue.
            effect: The effect over the whole samples, as a log-ratio.

        Returns:
            "changes" if the effect of some third has the opposite sign; "holds" if the interval of each third excludes
            0; "open" if neither is the case. None if the metric is unknown second by second.

        """
        parts = self.parts.get(metric)
        if parts is None:
            return None
        if any(part.effect * effect < 0 for part in parts):
            return "changes"
        return "holds" if all(part.excludes_zero for part in parts) else "open"

    def settle(self, effect: Effect) -> Effect:
        """Return the effect; a difference over whole samples becomes inconclusive if not every third of them confirms it."""
        taken = effect.decision.resolved and self._fails(effect)
        return replace(effect, decision=Decision.INCONCLUSIVE) if taken else effect

    def unsettled(self, effect: Effect) -> bool:
        """Return whether an effect is inconclusive only because not every third of the samples confirms it.

        Over the whole samples, such an effect is significant.
        """
        significant = effect.decision is Decision.INCONCLUSIVE and effect.holm_p is not None and effect.holm_p <= ALPHA
        return significant and self._fails(effect)

    def _fails(self, effect: Effect) -> bool:
        estimate = effect.estimate
        return estimate is not None and self.holds(effect.metric, estimate.effect) in ("changes", "open")

    def sentence(self, metric: str, effect: float) -> str:
        """Describe whether each third of the samples confirms an effect, with the numbers.

        Args:
            metric: The metric's name in the catalogue.
            effect: The effect over the whole samples, as a log-ratio.

        Returns:
            The description; empty if the metric is unknown second by second.

        """
        state = self.holds(metric, effect)
        if state is None:
            return ""
        text = {
            "holds": "it holds in each third",
            "changes": "its sign changes within the sample",
            "open": "it is not shown by each third",
        }[state]
        effects = ", ".join(
            find_metric(metric).change(part.effect)
            + (find_metric(metric).ends(*part.interval) if part.interval else "")
            for part in self.parts[metric]
        )
        burst = self.burst.get(metric)
        first = f"×{burst.ratio:.3g} in the first {BURST_S:g} s, " if burst else ""
        return f"{text} ({first}by thirds {effects}{STAND_IN[self.source]})"


def lasting_change(samples: Sequence[Sample]) -> UnsteadyArm | None:
    """Return the lasting changes of rate or CPU time within an arm's sustained samples at one load; None without any."""
    return find_unsteadiness([sample.steadiness.change if sample.steadiness else None for sample in samples])


def compute_thirds(arm: Mapping[int, Sample], base: Mapping[int, Sample], seconds: SecondsOf) -> Thirds | None:
    """Compute the effects of an arm (variant) against its baseline in each third of their sustained samples.

    A sustained sample has a load of minutes, and the thirds show whether an effect lasts throughout it. The effects are
    those on `rate` (requests per second) and `cpu_per_request` (CPU seconds per request). They are also computed for
    the first `BURST_S` seconds. A metric is left out if one of these stretches lacks it in any sample used.

    Args:
        arm: Block (number of the repetition) → the sample used for the arm.
        base: Block → the sample used for the baseline. Only blocks that both have are used.
        seconds: The function that returns a sample's totals of requests and CPU seconds at many moments of the load, or
            None if they are unknown.

    Returns:
        The effects; None if no block has these totals for both samples.

    """
    sides = [
        {block: values for block, sample in counted.items() if (values := seconds(sample))} for counted in (arm, base)
    ]
    blocks = sorted(sides[0].keys() & sides[1].keys())
    if not blocks:
        return None
    stretches = [[(*side[block].thirds(), side[block].burst()) for block in blocks] for side in sides]
    parts: dict[str, tuple[stats.Estimate, ...]] = {}
    burst: dict[str, stats.Estimate] = {}
    for metric in ("rate", "cpu_per_request"):
        if all(metric in stretch for side in stretches for block in side for stretch in block):
            arm_values, base_values = ([[stretch[metric] for stretch in block] for block in side] for side in stretches)
            *values, first = map(stats.estimate_ratio, zip(*arm_values, strict=True), zip(*base_values, strict=True))
            parts[metric], burst[metric] = tuple(values), first
    sources = {side[block].source for side in sides for block in blocks}
    return Thirds(parts, burst, next(source for source in reversed(list(STAND_IN)) if source in sources))
