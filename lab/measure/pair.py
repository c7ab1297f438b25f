"""The measuring of a pair: two systems that are loaded at once, so that the noise of the machine hits both.

Closed loops are interleaved: the two generators run in alternating time slices. Open loops run concurrently.

Each side is measured like a separate sample: canary (a checked request), warm-up, observation, verdict. In addition, no side
begins before the other is ready, the order of the time slices is planned, and a fault of one side makes both sides invalid. The
results of a pair are ratios. Its absolute values are no results, since the two sides delay each other. A generator that is
stopped at times has no usable clock, rate or latencies, so these are not stored.

In an interleaved pair, one of the two generators is stopped at any time. A small bash script (`slices.bash`) switches them. It
is started where the generators run, which may be a pod. It needs no program that is missing there, and its signals reach entire
process groups. No time is taken from the clock of a stopped generator.

The procedure is from Bulej, Horký, Tůma, Farquet, Prokopec: Duet benchmarking (ICPE 2020); the time slices are an addition of
the lab.
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
from lab.measure.measurement import BegunSample, Measurement, SampleRun, make_unmeasured, parse_report, refuse_undrained
from lab.measure.steady import SteadyRegime
from lab.measure.streamed import STEADY_REGIMES
from lab.measure.validity import Fault
from lab.model.pairs import MAX_IN_FLIGHT, SIDES, Layout
from lab.model.samples import Reason
from lab.model.usage import Observation
from lab.records.store import UNTIMED
from lab.targets.common.process import GeneratorJob, GeneratorOutcome, prepare_generators, run_generators
from lab.targets.common.scratch import make_scratch_folder

SCRIPT = Path(__file__).with_name("slices.bash")
"""The script that switches the generators of an interleaved pair."""
LENGTHS_S = (0.05, 0.1, 0.25, 0.5, 1.0)
"""The possible lengths of a slice in seconds."""
MIN_SLICES = 10
"""The least number of slices of each side.

A disturbance that lasts longer than a slice then affects both sides. With fewer slices, a pair's ratio varies several times
as much.
"""
MAX_UNEVEN = 0.05
"""The largest difference between the sides' times, as a share of the longer one."""
MAX_END_S = 5.0
"""The seconds in which the script must notice that both generators have ended."""


PROXY_CPU_ROLES = ("proxy", cpu.CONTROL_ROLE)
"""The roles whose processes run on the proxy's CPUs."""


@dataclass(slots=True)
class SliceSwitching:
    """The switching between the two generators of a pair (two variants at once): in each time slice only one of them runs.

    Attributes:
        jobs: The jobs of the left and the right generator.
        first: The index of the job that runs first: 0 or 1.
        length_s: The length of a slice in seconds.

    """

    jobs: Sequence[GeneratorJob]
    first: int
    length_s: float = LENGTHS_S[0]
    _changes: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """The switches: (seconds since the epoch, which of the script's two generators runs from then on; `-`: none)."""
    _fault: str = ""

    def warmed_rps(self, warmed: Sequence[GeneratorOutcome]) -> float:
        """Return the requests per second that were answered on both sides together during the warm-up.

        Args:
            warmed: The generators' processes of the warm-up, which have ended.

        """
        warm_ups = zip(self.jobs, warmed, strict=False)  # without a warm-up there are no processes
        results = [parse_report(job.generator, job.load, ended)[0] for job, ended in warm_ups]
        return sum(result.achieved_rps for result in results if result is not None)

    def choose_length(self, rate_rps: float, longer: bool) -> None:
        """Choose the length of the slices, and store it in `length_s`.

        A length must divide the load evenly, and give each side at least `MIN_SLICES` slices. It should also be so long
        that few answers arrive in the other side's slices (`MAX_IN_FLIGHT`). The shortest such length is chosen. If no
        length is long enough, the shortest of all is chosen. Then no rate is reported, but the machine's noise hits
        both sides alike.

        Args:
            rate_rps: The requests per second that are answered on both sides together; 0 = unknown.
            longer: Whether to take the next longer length, which may have fewer slices than `MIN_SLICES`.

        """
        load = self.jobs[0].load
        even = [length_s for length_s in LENGTHS_S if round(load.duration_s / length_s, 6) % 2 == 0] or [LENGTHS_S[0]]
        short = [length_s for length_s in even if length_s * 2 * MIN_SLICES <= load.duration_s]
        enough = [length_s for length_s in short if load.connections <= MAX_IN_FLIGHT * rate_rps * length_s]
        index = even.index(enough[0]) + longer if enough else 0
        self.length_s = even[min(index, len(even) - 1)]

    def run(self, lasting: ExitStack) -> list[GeneratorOutcome]:
        """Run both generators in alternating time slices until both have ended.

        If a generator never gets its turn because the switching fails, it is killed after its time, like one that
        hangs.

        Args:
            lasting: Holds the folder for the output of the switching.

        Returns:
            The processes of the left and the right generator, which have ended.

        """
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
        folder = lasting.enter_context(
            make_scratch_folder()
        )  # a separate one: a script must not be written while it is read
        stdout, stderr = folder / "out", folder / "err"
        started: list[subprocess.Popen[bytes]] = []

        def switch() -> None:
            with stdout.open("wb") as out, stderr.open("wb") as err:
                started.append(first.system.popen(argv, folder, out, err, script))

        try:
            ended = run_generators(waiting, switch)
            status = None
            with suppress(subprocess.TimeoutExpired):
                status = started[0].wait(MAX_END_S)
        finally:
            for process in started:
                if process.returncode is None:
                    process.kill()
                    process.wait()
        lines = stdout.read_text("utf-8", "replace").splitlines()
        self._changes = [(int(us) / 1e6, which) for us, which in (line.split() for line in lines)]
        if status != 0 or not self._changes or self._changes[-1][1] != "-":
            complaint = stderr.read_text("utf-8", "replace").strip()
            self._fault = f"who ran when is not known: the switching ended with status {status} {complaint}".strip()
        return ended

    def own_s(self, side: int) -> float:
        """Return the seconds for which a side's generator made its load, summed over its time slices.

        The sum ends when the planned duration of the load is over, counted from the beginning of the side's first
        slice.

        Args:
            side: The index of the side: 0 = left, 1 = right.

        """
        spans = self._list_spans(side)
        until = spans[0][0] + self.jobs[side].load.duration_s if spans else 0.0
        return sum(max(0.0, min(end, until) - begin) for begin, end in spans)

    def of(self, side: int, requests: int) -> dict[str, Any]:
        """Return the fields of a side's sample that describe its time slices: name of the field (of `PairSide`) → value.

        Args:
            side: The index of the side: 0 = left, 1 = right.
            requests: The number of requests that were answered on this side.

        """
        count = len(self._list_spans(side))
        in_flight = self.jobs[side].load.connections * count / requests if requests else None
        return {"slice_s": self.length_s, "own_s": self.own_s(side), "slices": count, "in_flight": in_flight}

    def faults(self) -> list[Fault]:
        """Return the faults of the switching between time slices, each as a reason and a sentence.

        Such a fault makes both sides of the pair invalid.
        """
        if self._fault:
            return [(Reason.UNEVEN, self._fault)]
        less_s, longer_s = sorted(self.own_s(side) for side in range(len(self.jobs)))
        if longer_s - less_s > MAX_UNEVEN * longer_s:
            return [(Reason.UNEVEN, f"one side ran for {less_s:.2f} s and the other for {longer_s:.2f} s")]
        return []

    def _list_spans(self, side: int) -> list[tuple[float, float]]:
        """Return the begin and end of each slice of a side, in seconds since the epoch.

        Args:
            side: The index of the side: 0 = left, 1 = right.

        """
        number = str(0 if side == self.first else 1)
        return [(begin, end) for (begin, which), (end, _) in pairwise(self._changes) if which == number]


@dataclass(frozen=True, slots=True)
class PairRun:
    """The measuring of a pair: two running systems that are loaded at once, in slices or concurrently.

    `sides` has the measurement of the left and that of the right system.
    """

    sides: Sequence[SampleRun]

    def measure(self, attempt: int) -> list[Measurement]:
        """Measure both systems at once; if one cannot be measured, neither is.

        Args:
            attempt: The number of the attempt, from 1.

        Returns:
            The results of the left and the right side.

        Raises:
            UndrainedStartError: The warm-up takes too many local ports of one of the systems.

        """
        left, right = regimes = [
            STEADY_REGIMES[run.slot.point.grpc](run.system, run.slot.point, alone=False) for run in self.sides
        ]
        with ExitStack() as lasting:
            starts = [run.begin(regime, attempt, lasting) for run, regime in zip(self.sides, regimes, strict=True)]
            begun = [start for start in starts if isinstance(start, BegunSample)]
            if len(begun) < len(SIDES):
                return _fail_both(starts)
            jobs = [side.job for side in begun]
            slot = self.sides[0].slot
            layout, interleaved = slot.layout or Layout(), slot.point.scheme == "slices"
            slices = SliceSwitching(jobs, SIDES.index(layout.first_slice)) if interleaved else None
            run = prepare_generators(jobs, lasting) if slices is None else partial(slices.run, lasting)
            ended: list[GeneratorOutcome] = []
            right_observation: list[Observation] = []

            def warm_up() -> None:
                """Warm up both systems at once, and choose the length of the slices from the rate that they reach.

                If there is no warm-up, the rate of an earlier one is used.
                """
                warmed = run_generators([job for side in begun for job in side.warm_up(lasting)])
                rate_rps = self.sides[0].start.rate_rps
                if slices is not None:
                    rate_rps = slices.warmed_rps(warmed) or rate_rps
                    slices.choose_length(rate_rps, layout.longer)
                for side in self.sides:
                    side.start.seen["start"] = side.system.leftovers()
                refuse_undrained([side.start for side in self.sides], rate_rps)

            def load() -> GeneratorOutcome:
                ended.extend(run())
                return ended[1]

            def watched() -> GeneratorOutcome:
                """Run the load while the right system is observed, and return the left generator's process.

                This runs inside the observation of the left system, so that both observations cover the entire load.
                """
                right_observation.append(right.run(lambda: None, load, jobs[1].scratch)[1])
                return ended[0]

            _, left_observation = left.run(warm_up, watched, jobs[0].scratch)
            for side in self.sides:
                side.start.seen["end"] = side.system.leftovers()
            return self._judge(regimes, begun, ended, [left_observation, *right_observation], slices)

    def _judge(
        self,
        regimes: Sequence[SteadyRegime],
        begun: Sequence[BegunSample],
        ended: Sequence[GeneratorOutcome],
        observations: Sequence[Observation],
        slices: SliceSwitching | None,
    ) -> list[Measurement]:
        """Judge both sides of a pair after the load, and return their results; a fault of one side makes both invalid.

        In every sequence the left side comes first.

        Args:
            regimes: The way in which each side was loaded.
            begun: Each side's measurement before its load.
            ended: Each side's generator process.
            observations: What was observed of each side's system.
            slices: The switching; None = both sides ran concurrently.

        """
        used_s = [cpu.sum_cpu_s(observation, end) for observation, end in zip(observations, ended, strict=True)]
        runs = [
            side.load_run(begun[index], ended[index], observations[index], used_s[1 - index])
            for index, side in enumerate(self.sides)
        ]
        if slices is not None:
            runs = [replace(run, cores=_scale_cores(run.cores, used_s, index)) for index, run in enumerate(runs)]
            for regime in regimes:
                regime.loaded_s = sum(slices.own_s(side) for side in range(len(regimes)))
        judged = [regime.findings(run) for regime, run in zip(regimes, runs, strict=True)]
        shared = slices.faults() if slices is not None else []
        unexplained = cpu.compute_unexplained_share(observations[0], sum(sum(role_s.values()) for role_s in used_s))
        measurements: list[Measurement] = []
        for index, (run, judgement) in enumerate(zip(runs, judged, strict=True)):
            opposite: list[Fault] = [
                (reason, f"on the other side: {message}") for reason, message in judged[1 - index].faults
            ]
            pair = begun[index].blank.pair
            assert pair is not None, "a pair's slot says so"
            timed = slices.of(index, run.result.requests if run.result else 0) if slices is not None else {}
            columns = {
                **judgement.columns,
                "pair": pair.model_copy(update={**timed, "unexplained": unexplained}),
                **(UNTIMED if slices is not None else {}),
            }
            findings = replace(judgement, faults=[*judgement.faults, *shared, *opposite], columns=columns)
            measurement = self.sides[index].finish(run, findings)
            measurements.append(measurement if slices is None else replace(measurement, histograms={}))
        return measurements


def _scale_cores(
    cores: Mapping[str, float | None], used_s: Sequence[Mapping[str, float]], index: int
) -> dict[str, float | None]:
    """Return how busy the CPUs were in the slices of one side, computed from how busy they were over all slices.

    The total is divided between the sides in proportion to the CPU time of their processes.

    Args:
        cores: How busy the CPUs of "proxy" and "generator" were over all slices, as fractions of one CPU; None =
            unknown.
        used_s: For each side: role → CPU seconds.
        index: The side: 0 = left, 1 = right.

    """
    scaled: dict[str, float | None] = {}
    for role, busy in cores.items():
        role_s = [
            sum(used for name, used in side.items() if (name in PROXY_CPU_ROLES) is (role == "proxy"))
            for side in used_s
        ]
        share = len(role_s) * role_s[index] / sum(role_s) if sum(role_s) else 1.0
        scaled[role] = None if busy is None else min(1.0, busy * share)
    return scaled


def _fail_both(starts: Sequence[BegunSample | Measurement]) -> list[Measurement]:
    """Return the results of a pair that cannot be loaded; both sides are invalid.

    Args:
        starts: For each side, a Measurement with the reason why it cannot be loaded, or a BegunSample that gets the
            other side's reason.

    """
    failed = next(start.sample for start in starts if isinstance(start, Measurement))
    assert failed.reason is not None, "a side without a load has a reason"
    faults = [(failed.reason, f"on the other side: {failed.detail}")]
    return [make_unmeasured(start.blank, faults) if isinstance(start, BegunSample) else start for start in starts]
