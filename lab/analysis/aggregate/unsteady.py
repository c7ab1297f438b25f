"""An arm at a point of which samples are not steady: how many, after how long, from what to what, and why. In words, as no number comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from lab.model.samples import Reason, Sample, counts
from lab.model.steadiness import CAUSES, Change
from lab.records.steadiness import describe_change

ALIKE_S = 0.5
"""Times until the change that differ by no more are the same: looks are a second apart."""
Where = tuple[str, str]
"""Arm and point."""


@dataclass(frozen=True, slots=True)
class UnsteadyArm:
    """`changes`: of its samples that changed; `judged`: so many counted until then, those included; `pairs`: they are sides of pairs, as no
    solo sample of it changed.
    """

    changes: tuple[Change, ...]
    causes: tuple[str, ...]
    judged: int
    pairs: bool

    @property
    def middle(self) -> Change:
        """The sample that stands for all: of those whose rate changes, where any does, the one of median time and rate."""
        shown = [change for change in self.changes if change.rate] or self.changes
        at_s = median(change.at_s for change in shown)
        nearest = min(abs(change.at_s - at_s) for change in shown)
        among = [change for change in shown if abs(change.at_s - at_s) <= nearest + ALIKE_S]
        return sorted(among, key=lambda change: change.rate_before_rps)[len(among) // 2]

    @property
    def share(self) -> str:
        """`4 of 10 samples`."""
        return f"{len(self.changes)} of {self.judged} {'pairs' if self.pairs else 'samples'}"

    def sentence(self) -> str:
        """Say what happens: `the rate falls in 10 of 10 samples after 2 s (11,300 req/s, then 340): local ports run out`."""
        middle = self.middle
        down = middle.rate_after_rps < middle.rate_before_rps
        if not middle.rate:
            down = (middle.cpu_after_s or 0.0) < (middle.cpu_before_s or 0.0)
        what = f"the {'rate' if middle.rate else 'CPU time per request'} {'falls' if down else 'rises'}"
        ends = sorted({round(change.at_s) for change in self.changes})
        after = f"{ends[0]} s" if len(ends) == 1 else f"{ends[0]} to {ends[-1]} s"
        why = f": {', '.join(self.causes)}" if self.causes else ""
        return f"{what} in {self.share} after {after} ({describe_change(middle, lasting=False)}){why}"

    def short(self) -> str:
        """Say it in a table's cell: `11,300 req/s for 2 s, then 340 (10 of 10 samples)`."""
        return f"{describe_change(self.middle)} ({self.share})"


def unsteady_arms(samples: Iterable[Sample]) -> Mapping[Where, UnsteadyArm]:
    """Find the arms, each at a point, of which a sample of its own changed for good; of pairs, by that side which did."""
    found: dict[tuple[str, str, bool], list[Sample]] = {}
    for sample in filter(counts, samples):
        if sample.valid or sample.reason is Reason.NOT_STEADY:
            found.setdefault((sample.arm, sample.point.name, sample.pair is not None), []).append(sample)
    arms: dict[Where, UnsteadyArm] = {}
    for (arm, point, pairs), own in sorted(found.items(), key=lambda item: item[0][2]):
        changes = tuple(sample.change for sample in own if sample.change is not None)
        if changes and (arm, point) not in arms:
            causes = dict.fromkeys(CAUSES[change.cause] for change in changes if change.cause)
            arms[arm, point] = UnsteadyArm(changes, tuple(causes), len(own), pairs)
    return arms
