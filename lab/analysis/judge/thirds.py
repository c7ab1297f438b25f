"""The effect in each third of a sustained sample: what holds for minutes, and what only for the first seconds.

It takes what was counted second by second, and returns rates, CPU seconds per request and effects of any stretch of the sample. If requests
were not counted by the second, the bytes that the backend sent stand for them, or in older samples its CPU time. Every text has a note then.
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
Source = Literal["requests", "sent-bytes", "backend-cpu"]
STAND_IN: Mapping[Source, str] = {
    "requests": "",
    "sent-bytes": "; rates by the bytes that the backend sent per second, which stand for the requests",
    "backend-cpu": "; rates by the backend's CPU time per second, which stands for the requests",
}
CHANGES = "its sign changes within the sample"

SecondsOf = Callable[[Sample], "RunningTotals | None"]


@dataclass(frozen=True, slots=True)
class RunningTotals:
    """The running totals of a sample at each moment that was looked at, as arrays of shape (n,).

    Attributes:
        t_s: The moments in seconds since the load began, ascending.
        requests: Requests answered until then, counted as `source` describes.
        cpu_s: CPU seconds used until then by the proxy, or by the backend where there is no proxy.
        source: What the requests were counted by.

    """

    t_s: Sequence[float]
    requests: Sequence[float]
    cpu_s: Sequence[float]
    source: Source

    def between(self, begin_s: float, end_s: float) -> dict[str, float]:
        """Return `rate` (requests per second) and `cpu_per_request` (seconds) of a stretch.

        A metric that would be no number is left out.
        """
        requests, cpu_s = (
            float(np.diff(np.interp([begin_s, end_s], self.t_s, values))[0]) for values in (self.requests, self.cpu_s)
        )
        metrics = {"rate": requests / (end_s - begin_s)} if requests > 0 else {}
        return metrics | ({"cpu_per_request": cpu_s / requests} if requests > 0 and cpu_s > 0 else {})

    def thirds(self) -> list[dict[str, float]]:
        """Return `between` of each third of the sample."""
        edges = np.linspace(self.t_s[0], self.t_s[-1], THIRDS + 1)
        return [self.between(float(begin), float(end)) for begin, end in pairwise(edges)]

    def burst(self) -> dict[str, float]:
        """Return `between` of the first `BURST_S` seconds."""
        return self.between(self.t_s[0], self.t_s[0] + BURST_S)


def read_running_totals(
    sample: Sample, usage: pl.DataFrame, counts: Sequence[float] | None = None
) -> RunningTotals | None:
    """Return what a sample did second by second; None with too few looks at its processes, or unknown requests.

    Args:
        sample: The sample.
        usage: The usage table of its processes.
        counts: Requests answered in each whole second since the load began. None: they were not counted, and what the backend
            sent or used stands for them.

    """
    used = {role: _sum_usage(usage, role, "cpu_s") for role in ("proxy", "backend")}
    totals = used["proxy"] or used["backend"]
    if len(totals) <= THIRDS or not sample.requests:
        return None
    t_s, cpu_s = zip(*totals.items(), strict=True)
    if counts is not None:
        sums = [0.0, *np.cumsum(counts)]
        return RunningTotals(t_s, [float(count) for count in np.interp(t_s, range(len(sums)), sums)], cpu_s, "requests")
    sent = _sum_usage(usage, "backend", "sent_bytes") if "sent_bytes" in usage.columns else {}
    work, source = (sent, "sent-bytes") if any(sent.values()) else (used["backend"], "backend-cpu")
    total = next(reversed(work.values()), 0.0)
    if total <= 0:
        return None
    requests = np.interp(t_s, list(work), list(work.values())) * (sample.requests / total)
    return RunningTotals(t_s, [float(count) for count in requests], cpu_s, source)


def make_totals_reader(run: RunStore) -> SecondsOf:
    """Return the function that reads from a stored run what a sample of it did second by second."""
    return lambda sample: read_running_totals(sample, run.usage(sample))


def _sum_usage(usage: pl.DataFrame, role: str, column: str) -> dict[float, float]:
    """Return the moment of a look → what all processes of a role had used since the first look.

    It is CPU seconds, or bytes sent.
    """
    selected = (pl.col("role") == role) & pl.col("tid").is_null() & pl.col(column).is_not_null()
    processes = usage.filter(selected).sort("t_s")
    increase = pl.col(column).cast(pl.Float64).diff().over("pid").fill_null(0.0)
    sums = processes.with_columns(more=increase).group_by("t_s").agg(pl.col("more").sum()).sort("t_s")
    return dict(zip(sums["t_s"].to_list(), sums["more"].cum_sum().to_list(), strict=True))


@dataclass(frozen=True, slots=True)
class Thirds:
    """The effects of one arm against its baseline within their sustained samples.

    Attributes:
        parts: Metric → the effect in each third.
        burst: Metric → the effect in the first `BURST_S` seconds.
        source: What the requests were counted by, as `RunningTotals.source`: the weakest of all samples.

    """

    parts: Mapping[str, tuple[stats.Estimate, ...]]
    burst: Mapping[str, stats.Estimate]
    source: Source

    def holds(self, metric: str, effect: float) -> Literal["holds", "changes", "open"] | None:
        """Return whether each third shows an effect (a log-ratio); None where the metric is not known by the second.

        "holds": each third's interval lies on the effect's side of 0. "changes": a third's effect has the other sign. "open": neither.
        """
        parts = self.parts.get(metric)
        if parts is None:
            return None
        if any(part.effect * effect < 0 for part in parts):
            return "changes"
        significant = all(part.interval and part.interval[0] * part.interval[1] > 0 for part in parts)
        return "holds" if significant else "open"

    def settle(self, effect: Effect) -> Effect:
        """Return the effect with its final decision.

        It is inconclusive if it is resolved over the sample but not in each third.
        """
        taken = effect.decision.resolved and self._fails(effect)
        return replace(effect, decision=Decision.INCONCLUSIVE) if taken else effect

    def unsettled(self, effect: Effect) -> bool:
        """Return whether `settle` took the decision from an effect: it is significant, but not in each third."""
        significant = effect.decision is Decision.INCONCLUSIVE and effect.holm_p is not None and effect.holm_p <= ALPHA
        return significant and self._fails(effect)

    def _fails(self, effect: Effect) -> bool:
        state = self.holds(effect.metric, effect.estimate.effect) if effect.estimate else None
        return state in ("changes", "open")

    def sentence(self, metric: str, effect: float) -> str:
        """Describe what the thirds show of an effect, with numbers; empty if it is not known by the second."""
        state = self.holds(metric, effect)
        if state is None:
            return ""
        text = {"holds": "it holds in each third", "changes": CHANGES, "open": "it is not shown by each third"}[state]
        effects = ", ".join(
            find_metric(metric).change(part.effect)
            + (find_metric(metric).ends(*part.interval) if part.interval else "")
            for part in self.parts[metric]
        )
        burst = self.burst.get(metric)
        first = f"×{burst.ratio:.3g} in the first {BURST_S:g} s, " if burst else ""
        return f"{text} ({first}by thirds {effects}{STAND_IN[self.source]})"


def lasting_change(samples: Sequence[Sample]) -> UnsteadyArm | None:
    """Return how the sustained samples of one arm at one point change for good; None if none does."""
    return find_unsteadiness([sample.steadiness.change if sample.steadiness else None for sample in samples])


def compute_thirds(arm: Mapping[int, Sample], base: Mapping[int, Sample], seconds: SecondsOf) -> Thirds | None:
    """Return the effects of an arm against its base by thirds; None if nothing is known by the second.

    Args:
        arm: Block → the sample of the arm that counts.
        base: The same of what it is compared with; only blocks that both have are used.
        seconds: What a sample did second by second.

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
