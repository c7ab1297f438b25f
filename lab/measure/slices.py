"""Two generators by turns, one of them stopped at any time: how long a slice lasts, who ran when, and what that says of the pair.

The switching is a small bash script's, started beside the generators, in a pod as well (`slices.bash`): it needs no program that a
generator's place lacks, and a signal from there reaches whole process groups. Refuses to time anything by a stopped generator's clock.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.measure.sample_run import parsed
from lab.measure.validity import Fault
from lab.model.pairs import MAX_IN_FLIGHT
from lab.model.samples import Reason
from lab.targets.common.process import Ended, Job, run_generators
from lab.targets.common.scratch import scratch

SCRIPT = Path(__file__).with_name("slices.bash")
LENGTHS_S = (0.05, 0.1, 0.25, 0.5, 1.0)
LEAST = 10
"""Slices of each side: what the machine does for longer than one is then on both. Of fewer a pair scatters by several times as much."""
MAX_UNEVEN = 0.05
"""By so much the sides' own times may differ, of the longer."""
END_S = 5.0
"""For the script to see that both generators have ended."""


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
        said = lasting.enter_context(open(folder / "out", "w+b"))  # noqa: SIM115 - it closes it
        complained = lasting.enter_context(open(folder / "err", "w+b"))  # noqa: SIM115
        started: list[subprocess.Popen[bytes]] = []

        def switch() -> None:
            started.append(first.system.popen(argv, folder, said, complained, script))

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
        said.seek(0)
        complained.seek(0)
        lines = said.read().decode("utf-8", "replace").splitlines()
        self._changes = [(int(us) / 1e6, which) for us, which in (line.split() for line in lines)]
        if status != 0 or not self._changes or self._changes[-1][1] != "-":
            why = complained.read().decode("utf-8", "replace").strip()
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
