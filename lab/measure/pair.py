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
from functools import partial
from typing import Any

from lab.measure import cpu
from lab.measure.measurement import Measurement, measurement, unmeasured
from lab.measure.sample_run import Begun, SampleRun, refuse_undrained
from lab.measure.slices import Slices
from lab.measure.steady import Steady
from lab.measure.validity import Fault
from lab.model.pairs import SIDES, Layout
from lab.model.usage import Observation
from lab.records.store import UNTIMED
from lab.targets.common.process import Ended, held, run_generators, taken

THERE = ("proxy", cpu.CONTROL)
"""Roles on the proxy's CPUs."""


@dataclass(frozen=True, slots=True)
class PairRun:
    """One point on two systems that are up: `sides` are the left one's sample and the right one's, of one slot."""

    sides: tuple[SampleRun, SampleRun]

    @property
    def layout(self) -> Layout:
        return self.sides[0].slot.layout or Layout()

    def measure(self, attempt: int) -> tuple[Measurement, Measurement]:
        """Of the left side and of the right one; where one cannot be measured neither is.

        Raises UndrainedStartError where the warm-up takes too many local ports of one of them.
        """
        left, right = regimes = [
            Steady(run.system, run.slot.point, run.chosen.generator, alone=False) for run in self.sides
        ]
        with ExitStack() as lasting:
            made = [run.begin(regime, attempt, lasting) for run, regime in zip(self.sides, regimes, strict=True)]
            begun = [each for each in made if isinstance(each, Begun)]
            if len(begun) < len(SIDES):
                return _neither(made)
            jobs = [each.job for each in begun]
            by_turns = self.sides[0].slot.point.scheme == "slices"
            slices = Slices(jobs, SIDES.index(self.layout.first_slice)) if by_turns else None
            run = held(jobs, lasting) if slices is None else partial(slices.run, lasting)
            ended: list[Ended] = []
            right_seen: list[Observation] = []

            def warm_up() -> None:
                """Both at once, which also tells how fast the machine is; where it is left out, an earlier one told it."""
                warmed = run_generators([job for each in begun for job in each.warm_up(lasting)])
                rate_rps = self.sides[0].start.rate_rps
                if slices is not None:
                    rate_rps = slices.warmed_rps(warmed) or rate_rps
                    slices.choose_length(rate_rps, self.layout.longer)
                for side in self.sides:
                    side.start.look(side.system, "start")
                refuse_undrained([side.start for side in self.sides], rate_rps)

            def load() -> Ended:
                ended.extend(run())
                return ended[1]

            def watched() -> Ended:
                """The right side's watch lies within the left side's: both see the whole load."""
                right_seen.append(right.run(lambda: None, load, jobs[1].scratch)[1])
                return ended[0]

            _, left_seen = left.run(warm_up, watched, jobs[0].scratch)
            for side in self.sides:
                side.start.look(side.system, "end")
            return self._judged(regimes, begun, ended, [left_seen, *right_seen], slices)

    def _judged(
        self,
        regimes: Sequence[Steady],
        begun: Sequence[Begun],
        ended: Sequence[Ended],
        seen: Sequence[Observation],
        slices: Slices | None,
    ) -> tuple[Measurement, Measurement]:
        used_s = [cpu.used_s(each, end) for each, end in zip(seen, ended, strict=True)]
        runs = [side.load_run(begun[at], ended[at], seen[at], used_s[1 - at]) for at, side in enumerate(self.sides)]
        if slices is not None:
            runs = [replace(run, cores=_own_cores(run.cores, used_s, at)) for at, run in enumerate(runs)]
        if slices is not None:
            for regime in regimes:
                regime.loaded_s = sum(slices.own_s(side) for side in range(len(regimes)))
        found = [regime.findings(run) for regime, run in zip(regimes, runs, strict=True)]
        shared = slices.faults() if slices is not None else []
        unexplained = cpu.unexplained(seen[0], sum(sum(used.values()) for used in used_s))
        made: list[Measurement] = []
        for at, (run, own) in enumerate(zip(runs, found, strict=True)):
            others: list[Fault] = [(reason, f"on the other side: {what}") for reason, what in found[1 - at].faults]
            pair = begun[at].blank.pair
            assert pair is not None, "a pair's slot says so"
            timed = slices.of(at, run.result.requests if run.result else 0) if slices is not None else {}
            columns: dict[str, Any] = {"pair": pair.model_copy(update={**timed, "unexplained": unexplained})}
            if slices is not None:
                columns |= UNTIMED
            findings = replace(own, faults=[*own.faults, *shared, *others], columns={**own.columns, **columns})
            left_files = taken(begun[at].job.scratch, self.sides[at].chosen.keep)
            one = measurement(self.sides[at].seen_around(begun[at]), run, findings, left_files)
            made.append(one if slices is None else replace(one, histograms={}))
        return made[0], made[1]


def _own_cores(
    cores: Mapping[str, float | None], used_s: Sequence[Mapping[str, float]], at: int
) -> dict[str, float | None]:
    """How busy the CPUs were in one side's slices, of how busy they were in all: by what its processes used there of what both did."""
    own: dict[str, float | None] = {}
    for role, busy in cores.items():
        there = [sum(used for name, used in side.items() if (name in THERE) is (role == "proxy")) for side in used_s]
        share = len(there) * there[at] / sum(there) if sum(there) else 1.0
        own[role] = None if busy is None else min(1.0, busy * share)
    return own


def _neither(made: Sequence[Begun | Measurement]) -> tuple[Measurement, Measurement]:
    """A side that could have been measured has the other one's reasons."""
    failed = next(each.sample for each in made if isinstance(each, Measurement))
    assert failed.reason is not None, "a side without a load has a reason"
    why = [(failed.reason, f"on the other side: {failed.detail}")]
    left, right = (unmeasured(each.blank, why) if isinstance(each, Begun) else each for each in made)
    return left, right
