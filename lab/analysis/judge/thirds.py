"""An effect in each third of a sustained sample: what holds for minutes, and what only for the first seconds.

Takes what was counted second by second and returns rates, CPU seconds per request, and effects of any stretch of the sample. Where
requests were not counted by the second, the bytes that the backend sent stand for them, or in older samples its CPU time, and every text says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl

from lab.analysis.aggregate.cells import UnsteadyArm, unsteady_arm
from lab.analysis.judge.decision import SURE_P, Decision
from lab.analysis.judge.effects import Effect
from lab.model.metrics import about
from lab.model.samples import Sample
from lab.records.store import RunStore
from lab.stats import paired as stats

BURST_S = 2.0
"""The first seconds, which are shown beside the thirds: in the committed port-wait samples the ports were used up after them."""
THIRDS = 3
Source = Literal["requests", "sent-bytes", "backend-cpu"]
STAND_IN: Mapping[Source, str] = {
    "requests": "",
    "sent-bytes": "; rates by the bytes that the backend sent per second, which stand for the requests",
    "backend-cpu": "; rates by the backend's CPU time per second, which stands for the requests",
}
CHANGES = "its sign changes within the sample"

SecondsOf = Callable[[Sample], "Seconds | None"]


@dataclass(frozen=True, slots=True)
class Seconds:
    """What a sample did until each moment that was looked at: arrays of shape (n,), `t_s` ascends from the load's begin.

    `requests`: answered until then, as `source` says; `cpu_s`: CPU seconds that the proxy (without one, the backend) had used.
    """

    t_s: Sequence[float]
    requests: Sequence[float]
    cpu_s: Sequence[float]
    source: Source

    def between(self, begin_s: float, end_s: float) -> dict[str, float]:
        """Return `rate` (requests per second) and `cpu_per_request` (seconds) of a stretch; a metric that would be no number is left out."""
        requests, cpu_s = (
            float(np.diff(np.interp([begin_s, end_s], self.t_s, values))[0]) for values in (self.requests, self.cpu_s)
        )
        found = {"rate": requests / (end_s - begin_s)} if requests > 0 else {}
        return found | ({"cpu_per_request": cpu_s / requests} if requests > 0 and cpu_s > 0 else {})

    def thirds(self) -> list[dict[str, float]]:
        """Return `between` of each third of the sample."""
        edges = np.linspace(self.t_s[0], self.t_s[-1], THIRDS + 1)
        return [self.between(float(begin), float(end)) for begin, end in pairwise(edges)]

    def burst(self) -> dict[str, float]:
        """Return `between` of the first `BURST_S` seconds."""
        return self.between(self.t_s[0], self.t_s[0] + BURST_S)


def seconds_of(sample: Sample, usage: pl.DataFrame, counts: Sequence[float] | None = None) -> Seconds | None:
    """Return what a sample did second by second, by its processes' `usage`; None where looks at them are too few or its requests unknown.

    `counts`: requests answered in each whole second from the load's begin; None: not counted, what the backend sent or used stands for them.
    """
    used = {role: _used(usage, role, "cpu_s") for role in ("proxy", "backend")}
    own = used["proxy"] or used["backend"]
    if len(own) <= THIRDS or not sample.requests:
        return None
    t_s, cpu_s = zip(*own.items(), strict=True)
    if counts is not None:
        sums = [0.0, *np.cumsum(counts)]
        return Seconds(t_s, [float(each) for each in np.interp(t_s, range(len(sums)), sums)], cpu_s, "requests")
    sent = _used(usage, "backend", "sent_bytes") if "sent_bytes" in usage.columns else {}
    work, source = (sent, "sent-bytes") if any(sent.values()) else (used["backend"], "backend-cpu")
    total = next(reversed(work.values()), 0.0)
    if total <= 0:
        return None
    requests = np.interp(t_s, list(work), list(work.values())) * (sample.requests / total)
    return Seconds(t_s, [float(each) for each in requests], cpu_s, source)


def seconds_in(run: RunStore) -> SecondsOf:
    """Return the function that reads from a stored run what a sample of it did second by second."""
    return lambda sample: seconds_of(sample, run.usage(sample))


def _used(usage: pl.DataFrame, role: str, column: str) -> dict[float, float]:
    """Moment of a look → what all processes of a role together had used (CPU seconds) or sent (bytes) since the first look."""
    whole = (pl.col("role") == role) & pl.col("tid").is_null() & pl.col(column).is_not_null()
    processes = usage.filter(whole).sort("t_s")
    more = pl.col(column).cast(pl.Float64).diff().over("pid").fill_null(0.0)
    sums = processes.with_columns(more=more).group_by("t_s").agg(pl.col("more").sum()).sort("t_s")
    return dict(zip(sums["t_s"].to_list(), sums["more"].cum_sum().to_list(), strict=True))


@dataclass(frozen=True, slots=True)
class Thirds:
    """One arm against its baseline within their sustained samples: metric → its effect in each third, and in the first `BURST_S` seconds.

    `source`: as `Seconds.source`, the weakest of all samples.
    """

    parts: Mapping[str, tuple[stats.Estimate, ...]]
    burst: Mapping[str, stats.Estimate]
    source: Source

    def holds(self, metric: str, effect: float) -> Literal["holds", "changes", "open"] | None:
        """Return whether an effect (a log-ratio) is shown by each third; None where the metric is not known by the second.

        "holds": each third's interval lies on its side of 0. "changes": a third's effect has the other sign. "open": neither.
        """
        parts = self.parts.get(metric)
        if parts is None:
            return None
        if any(part.effect * effect < 0 for part in parts):
            return "changes"
        shown = all(part.interval and part.interval[0] * part.interval[1] > 0 for part in parts)
        return "holds" if shown else "open"

    def settle(self, effect: Effect) -> Effect:
        """Return the effect as it may be decided: not resolved where it is, over the whole sample, but not in each third."""
        taken = effect.decision.resolved and self._fails(effect)
        return replace(effect, decision=Decision.CANNOT_TELL) if taken else effect

    def unsettled(self, effect: Effect) -> bool:
        """Return whether `settle` took the decision from an effect: surer than chance, and not so in each third."""
        sure = effect.decision is Decision.CANNOT_TELL and effect.holm_p is not None and effect.holm_p <= SURE_P
        return sure and self._fails(effect)

    def _fails(self, effect: Effect) -> bool:
        state = self.holds(effect.metric, effect.estimate.effect) if effect.estimate else None
        return state in ("changes", "open")

    def sentence(self, metric: str, effect: float) -> str:
        """Return what the thirds show of an effect, with their numbers; empty where the metric is not known by the second."""
        state = self.holds(metric, effect)
        if state is None:
            return ""
        said = {"holds": "it holds in each third", "changes": CHANGES, "open": "it is not shown by each third"}[state]
        each = ", ".join(
            about(metric).change(part.effect) + (about(metric).ends(*part.interval) if part.interval else "")
            for part in self.parts[metric]
        )
        burst = self.burst.get(metric)
        first = f"×{burst.ratio:.3g} in the first {BURST_S:g} s, " if burst else ""
        return f"{said} ({first}by thirds {each}{STAND_IN[self.source]})"


def lasting_change(samples: Sequence[Sample]) -> UnsteadyArm | None:
    """Return how the sustained samples of one arm at one point change for good; None where none does."""
    return unsteady_arm([each.steadiness.change if each.steadiness else None for each in samples])


def thirds_of(own: Mapping[int, Sample], base: Mapping[int, Sample], seconds: SecondsOf) -> Thirds | None:
    """Return the effects of `own` against `base` by thirds, over the blocks that both have; None where nothing is known by the second."""
    sides = [
        {block: found for block, sample in counted.items() if (found := seconds(sample))} for counted in (own, base)
    ]
    blocks = sorted(sides[0].keys() & sides[1].keys())
    if not blocks:
        return None
    stretches = [[(*side[block].thirds(), side[block].burst()) for block in blocks] for side in sides]
    parts: dict[str, tuple[stats.Estimate, ...]] = {}
    burst: dict[str, stats.Estimate] = {}
    for metric in ("rate", "cpu_per_request"):
        if all(metric in stretch for side in stretches for block in side for stretch in block):
            ours, theirs = ([[stretch[metric] for stretch in block] for block in side] for side in stretches)
            *found, first = map(stats.paired, zip(*ours, strict=True), zip(*theirs, strict=True))
            parts[metric], burst[metric] = tuple(found), first
    sources = {side[block].source for side in sides for block in blocks}
    return Thirds(parts, burst, next(source for source in reversed(list(STAND_IN)) if source in sources))
