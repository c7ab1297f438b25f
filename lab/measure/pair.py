"""Two systems at once, so that the machine's noise hits both: by turns in slices (closed loops), or together (given rates).

Each side is measured as a sample of its own is: canaried, warmed up, watched, judged. What is added is that nobody begins before the
other is ready, who may run when, and that what speaks against one side speaks against both. A pair's ratios are results and its levels
are not, since the sides queue behind each other: of a generator that is stopped in between, its clock, rate and latencies are not kept.

Bulej, Horký, Tůma, Farquet, Prokopec: Duet benchmarking (ICPE 2020) has the procedure; slices are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from lab.measure.measurement import Measurement, measurement, unmeasured
from lab.measure.sample_run import Begun, SampleRun
from lab.measure.slices import Slices
from lab.measure.steady import Steady
from lab.measure.validity import Fault
from lab.model.pairs import PairSide, Scheme, Side
from lab.model.sweeps import Point
from lab.model.usage import Observation
from lab.targets.common.process import Ended, run_generators, taken

SIDES: tuple[Side, Side] = ("left", "right")
UNTIMED: Mapping[str, Any] = dict.fromkeys(("achieved_rps", "duration_s", "recorded_s", "histogram"))
"""What a generator cannot know that was stopped in between."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Of one pair in one block: which side came up first, which runs first, and whether in the longer of two lengths of slice."""

    first_up: Side = "left"
    first_slice: Side = "left"
    longer: bool = False


def scheme(point: Point) -> Scheme:
    """A schedule cannot be stopped: what has one is loaded together."""
    return "slices" if point.rate_rps is None else "together"


@dataclass(frozen=True, slots=True)
class PairRun:
    """One point on two systems that are up: `sides` are the left one's sample and the right one's."""

    sides: tuple[SampleRun, SampleRun]
    layout: Layout = Layout()

    def measure(self, attempt: int) -> tuple[Measurement, Measurement]:
        """Of the left side and of the right one; where one cannot be measured neither is."""
        left, right = regimes = [
            Steady(run.system, run.slot.point, run.chosen.generator, alone=False) for run in self.sides
        ]
        with ExitStack() as lasting:
            made = [run.begin(regime, attempt, lasting) for run, regime in zip(self.sides, regimes, strict=True)]
            begun = [each for each in made if isinstance(each, Begun)]
            if len(begun) < len(SIDES):
                return _neither(made)
            jobs = [each.job for each in begun]
            by_turns = scheme(self.sides[0].slot.point) == "slices"
            slices = Slices(jobs, SIDES.index(self.layout.first_slice)) if by_turns else None
            ended: list[Ended] = []
            right_seen: list[Observation] = []

            def warm_up() -> None:
                """Both at once, which also tells how fast the machine is."""
                warmed = run_generators([job for each in begun for job in each.warm_up(lasting)])
                if slices is not None:
                    slices.choose_length(warmed, self.layout.longer)

            def load() -> Ended:
                ended.extend(run_generators(jobs) if slices is None else slices.run(lasting))
                return ended[1]

            def watched() -> Ended:
                """The right side's watch lies within the left side's: both see the whole load."""
                right_seen.append(right.run(lambda: None, load, jobs[1].scratch)[1])
                return ended[0]

            _, left_seen = left.run(warm_up, watched, jobs[0].scratch)
            return self._judged(regimes, begun, ended, [left_seen, *right_seen], slices)

    def _judged(
        self,
        regimes: Sequence[Steady],
        begun: Sequence[Begun],
        ended: Sequence[Ended],
        seen: Sequence[Observation],
        slices: Slices | None,
    ) -> tuple[Measurement, Measurement]:
        used_s = [
            {role: usage.cpu_s for role, usage in each.usage.items() if role != "lab"} | {"generator": end.cpu_s or 0.0}
            for each, end in zip(seen, ended, strict=True)
        ]
        runs = [side.load_run(begun[at], ended[at], seen[at], used_s[1 - at]) for at, side in enumerate(self.sides)]
        found = [regime.findings(run) for regime, run in zip(regimes, runs, strict=True)]
        shared = slices.faults() if slices is not None else []
        made: list[Measurement] = []
        for at, (run, own) in enumerate(zip(runs, found, strict=True)):
            others: list[Fault] = [(reason, f"on the other side: {what}") for reason, what in found[1 - at].faults]
            columns = {"pair": self._side(at, slices, run.result.requests if run.result else 0)}
            if slices is not None:
                columns |= UNTIMED
            findings = replace(own, faults=[*own.faults, *shared, *others], columns={**own.columns, **columns})
            left_files = taken(begun[at].job.scratch, self.sides[at].chosen.keep)
            one = measurement(begun[at].blank, run, findings, left_files)
            made.append(one if slices is None else replace(one, histograms={}))
        return made[0], made[1]

    def _side(self, at: int, slices: Slices | None, requests: int) -> PairSide:
        run, layout = self.sides[1 - at], self.layout
        return PairSide(
            against=run.slot.arm.name,
            side=SIDES[at],
            scheme=scheme(run.slot.point),
            first_up=layout.first_up == SIDES[at],
            first_slice=slices is not None and layout.first_slice == SIDES[at],
            **(slices.of(at, requests) if slices is not None else {}),
        )


def _neither(made: Sequence[Begun | Measurement]) -> tuple[Measurement, Measurement]:
    """A side that could have been measured has the other one's reasons."""
    failed = next(each.sample for each in made if isinstance(each, Measurement))
    assert failed.reason is not None, "a side without a load has a reason"
    why = [(failed.reason, f"on the other side: {failed.detail}")]
    left, right = (unmeasured(each.blank, why) if isinstance(each, Begun) else each for each in made)
    return left, right
