"""Two systems at once, so that the machine's noise hits both: by turns in slices (closed loops), or together (given rates).

Each side is measured as a sample of its own is: canaried, warmed up, watched, judged. What is added is that nobody begins before the
other is ready, who may run when, and that what speaks against one side speaks against both. A pair's ratios are results and its levels
are not, since the sides queue behind each other: of a generator that is stopped in between, its clock, rate and latencies are not kept.

By turns one of two generators is stopped at any time. The switching is a small bash script's, started beside the generators, in a pod as well
(`slices.bash`): it needs no program that a generator's place lacks, and a signal from there reaches whole process groups. Refuses to time
anything by a stopped generator's clock.

Bulej, Horký, Tůma, Farquet, Prokopec: Duet benchmarking (ICPE 2020) has the procedure; slices are ours.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.measure import cpu
from lab.measure.measurement import Begun, Measurement, SampleRun, parsed, refuse_undrained, unmeasured
from lab.measure.steady import Steady
from lab.measure.validity import Fault
from lab.model.pairs import MAX_IN_FLIGHT, SIDES, Layout
from lab.model.samples import Reason
from lab.model.usage import Observation
from lab.records.store import UNTIMED
from lab.targets.common.process import Ended, Job, held, run_generators
from lab.targets.common.scratch import scratch

SCRIPT = Path(__file__).with_name("slices.bash")
LENGTHS_S = (0.05, 0.1, 0.25, 0.5, 1.0)
LEAST = 10
"""Slices of each side: what the machine does for longer than one is then on both. Of fewer a pair scatters by several times as much."""
MAX_UNEVEN = 0.05
"""By so much the sides' own times may differ, of the longer."""
END_S = 5.0
"""For the script to see that both generators have ended."""


THERE = ("proxy", cpu.CONTROL)
"""Roles on the proxy's CPUs."""


@dataclass(slots=True)
class Slices:
    """Of the left generator's job and the right one's; `first` (0, 1) runs first."""

    jobs: Sequence[Job]
    first: int
    length_s: float = LENGTHS_S[0]
    _changes: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """(seconds since the epoch, which of the script's two runs from then on)"""
    _fault: str = ""

    def warmed_rps(self, warmed: Sequence[Ended]) -> float:
        """Return how many requests per second both generators together answered while they warmed up."""
        rate_rps = 0.0
        for job, ended in zip(self.jobs, warmed, strict=False):
            result, _ = parsed(job.generator, job.load, ended)
            rate_rps += result.achieved_rps if result is not None else 0.0
        return rate_rps

    def choose_length(self, rate_rps: float, longer: bool) -> None:
        """The shortest in which few enough answers are in flight at its end, as fast as both together were (`rate_rps`, 0: not known); `longer`: the next one, of
        which there may be fewer.

        Of those that give both sides as many slices, LEAST or more. Where even the last of them is too short no rate is told, and the
        shortest one it is, which has most of the machine's noise on both sides.
        """
        load = self.jobs[0].load
        even = [length_s for length_s in LENGTHS_S if round(load.duration_s / length_s, 6) % 2 == 0] or [LENGTHS_S[0]]
        short = [length_s for length_s in even if length_s * 2 * LEAST <= load.duration_s]
        enough = [length_s for length_s in short if load.connections <= MAX_IN_FLIGHT * rate_rps * length_s]
        at = even.index(enough[0]) + longer if enough else 0
        self.length_s = even[min(at, len(even) - 1)]

    def run(self, lasting: ExitStack) -> list[Ended]:
        """Until both have ended. Who cannot be switched hangs, and is killed as any generator that does."""
        mark = secrets.token_hex(8)
        files = [f"/tmp/lab-{mark}-{side}" for side in range(len(self.jobs))]
        script = {SCRIPT.name: SCRIPT.read_text("utf-8")}
        waiting = [
            replace(job, before=("bash", SCRIPT.name, "wait", file), files=script)
            for job, file in zip(self.jobs, files, strict=True)
        ]
        first = self.jobs[self.first]
        order = files if self.first == 0 else files[::-1]
        argv = ["bash", SCRIPT.name, "turns", f"{self.length_s * 1e6:.0f}", *order]
        folder = lasting.enter_context(scratch())  # of its own: a script must not be written while it is read
        said, complained = folder / "out", folder / "err"
        started: list[subprocess.Popen[bytes]] = []

        def switch() -> None:
            with said.open("wb") as out, complained.open("wb") as err:
                started.append(first.system.popen(argv, folder, out, err, script))

        try:
            ended = run_generators(waiting, switch)
            status = None
            with suppress(subprocess.TimeoutExpired):
                status = started[0].wait(END_S)
        finally:
            for process in started:
                if process.returncode is None:
                    process.kill()
                    process.wait()
        lines = said.read_text("utf-8", "replace").splitlines()
        self._changes = [(int(us) / 1e6, which) for us, which in (line.split() for line in lines)]
        if status != 0 or not self._changes or self._changes[-1][1] != "-":
            why = complained.read_text("utf-8", "replace").strip()
            self._fault = f"who ran when is not known: the switching ended with status {status} {why}".strip()
        return ended

    def own_s(self, at: int) -> float:
        """For how long a side's generator made its load, of all slices: it begins with the first, and lasts as long as was asked."""
        spans = self._spans(at)
        until = spans[0][0] + self.jobs[at].load.duration_s if spans else 0.0
        return sum(max(0.0, min(end, until) - begin) for begin, end in spans)

    def of(self, at: int, requests: int) -> dict[str, Any]:
        """A side's columns of `PairSide`; `requests`: how many it had answered."""
        count = len(self._spans(at))
        in_flight = self.jobs[at].load.connections * count / requests if requests else None
        return {"slice_s": self.length_s, "own_s": self.own_s(at), "slices": count, "in_flight": in_flight}

    def faults(self) -> list[Fault]:
        """What speaks against both sides."""
        if self._fault:
            return [(Reason.UNEVEN, self._fault)]
        less_s, more_s = sorted(self.own_s(at) for at in range(len(self.jobs)))
        if more_s - less_s > MAX_UNEVEN * more_s:
            return [(Reason.UNEVEN, f"one side ran for {less_s:.2f} s and the other for {more_s:.2f} s")]
        return []

    def _spans(self, at: int) -> list[tuple[float, float]]:
        mine = str(0 if at == self.first else 1)
        return [(begin, end) for (begin, which), (end, _) in pairwise(self._changes) if which == mine]


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
                    side.start.seen["start"] = side.system.leftovers()
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
                side.start.seen["end"] = side.system.leftovers()
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
            one = self.sides[at].finish(run, findings)
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
