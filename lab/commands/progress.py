"""The display of a run's progress on stderr: what is measured, the effects so far, the time left, and what went wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import log
from statistics import fmean

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.text import Text

from lab.analysis.aggregate.cells import number_block
from lab.analysis.knee.report import classify_trial
from lab.base.errors import LabError
from lab.model.metrics import METRICS
from lab.model.plan import Plan, Slot
from lab.model.run import RunRecord
from lab.model.samples import Sample, key_of_measurement
from lab.stats import paired as stats
from lab.stats.histogram import Histogram
from lab.stats.units import format_rate, format_seconds
from lab.targets.readback import Reading

MIN_BLOCKS_SHOWN = 3
"""The number of blocks with pairs from which their effect so far is shown; as in the result, a block is one value."""
MOST_EFFECTS, MOST_LIVE = 2, 6
"""The most effects so far in the line of a block, and on a terminal."""


class LineObserver:
    """The base class of the displays that show the progress of a run on stderr.

    It prints which settings did not take effect, which systems did not start, and why a system is started again.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def begins(self, slot: Slot, attempt: int) -> None:
        """Do nothing; the method is called when a measurement or its system's start begins, so that subclasses can show this."""

    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None:
        """Print a line for each setting that did not take effect in a system that has just started.

        Args:
            slot: The planned measurement for which the system was started.
            took_s: The seconds that the start took; they are not printed.
            readings: The results of the read-backs (checks of the running system's settings).

        """
        for reading in readings:
            if not reading.ok:
                self._print_line(f"[red]not applied[/]  {slot.arm.name}: {escape(str(reading))}")

    def bringing_up_anew(self, slot: Slot, why: Sequence[str]) -> None:
        """Print why a system is started again before a planned measurement.

        Args:
            slot: The planned measurement.
            why: The reasons in words, such as too many sockets in TIME_WAIT after an earlier load.

        """
        message = f"{_name_arms(slot)} is brought up anew before {slot.point.name}: {'; '.join(why)}"
        self._print_line(f"       [yellow]{escape(message)}[/]")

    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None:
        """Do nothing; the method is called after a pair (two variants at once) was measured, so that subclasses can show this."""

    def failed(self, slot: Slot, error: LabError) -> None:
        """Print that the system for a planned measurement did not start or was lost while it was measured, and the error."""
        self._print_line(f"[red]{slot.arm.name} did not come up[/] {escape(str(error))}")

    def _print_line(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


class RunTerminal(LineObserver):
    """The display of a run's progress; it is also a context manager.

    On a terminal it shows what is being measured, the time left, and the effects so far, in a few lines that are
    rewritten and vanish at the end. Otherwise it prints one line per block (repetition of all measurements). In both
    cases faults are printed as lines that stay.
    """

    def __init__(self, console: Console, plan: Plan, duration_s: float, done: int) -> None:
        super().__init__(console)
        self._slots, self._blocks, self._duration_s = plan.slots, plan.blocks, duration_s
        self._now, self._block, self._valid, self._tried = "starting", 0, 0, 0
        self._costs: dict[tuple[str, str], dict[int, list[float]]] = {}
        self._start_done, self._done, self._began = done, done, time.monotonic()
        # few refreshes, as the display shares a CPU with the generator
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=1, transient=True)

    def __enter__(self) -> RunTerminal:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._end_block(0)

    def begins(self, slot: Slot, attempt: int) -> None:
        """Show which measurement begins, or that its system is being started.

        Args:
            slot: The planned measurement.
            attempt: The number of the attempt, from 1; 0 while the system is being started.

        """
        if slot.block != self._block:
            self._end_block(slot.block)
        again = f", attempt {attempt}" if attempt > 1 else ""
        doing = f"{slot.point.name}{again}" if attempt else "coming up"
        self._now = f"block {slot.block} of {self._blocks}  {_name_arms(slot)}  {doing}"

    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None:
        """Count a measurement as done if it is not repeated, and print the reason if its sample is invalid.

        It is a solo measurement (one system alone on the machine), one side of a pair whose systems did not start, or a
        pair with the sample that `paired` has chosen.

        Args:
            slot: The planned measurement.
            sample: The sample.
            latency: The histogram of its latencies, which is not used here.
            last: Whether this was the last attempt, so that the measurement is not repeated.

        """
        self._done += last
        self._valid, self._tried = self._valid + sample.valid, self._tried + last
        if sample.valid:
            return
        detail = sample.detail.splitlines()[0] if sample.detail else ""
        why = detail or (sample.reason.meaning.removesuffix(".") if sample.reason else "")
        place = f"block {slot.block} of {self._blocks}  {_name_arms(slot)} at {slot.point.name}"
        reason = escape(why if why.startswith(f"{sample.reason}:") else f"{sample.reason}: {why}")
        tries = f" after {sample.attempt} tries" if sample.attempt > 1 else ""
        unneeded = "; the verdict does not need it" if slot.arm.role == "reference" else ""
        outcome = f"[red]gave up{tries}[/], {reason}{unneeded}" if last else f"[yellow]repeated[/], {reason}"
        self._print_line(f"{place}: {outcome}")

    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None:
        """Count the measurement of a pair (two variants at once), and print the reason if a sample is invalid.

        The measurement counts as done if it is not repeated. If both samples are valid and both CPU times per request are
        known, the log of their ratio is appended to those from which the effects so far are computed.

        Args:
            slot: The planned measurement.
            own: The sample of `slot.arm`, the variant that is compared with the other one.
            base: The sample of the variant on the other side of the pair.
            last: Whether this was the last attempt, so that the measurement is not repeated.

        """
        cost_s, base_s = own.cpu_per_request_s, base.cpu_per_request_s
        if own.valid and base.valid and cost_s and base_s:
            blocks = self._costs.setdefault((slot.arm.name, slot.point.name), {})
            blocks.setdefault(number_block(slot.point, key_of_measurement(slot)), []).append(log(cost_s / base_s))
        self.measured(slot, own if not own.valid else base, None, last)

    def _end_block(self, following: int) -> None:
        """End the current block (repetition of all measurements) and go on with the next one.

        If the output is not a terminal, a line about the block that has ended is printed.

        Args:
            following: The number of the next block; 0 = the run has ended.

        """
        if self._block and not self._console.is_terminal:
            effects, left = list(self._list_effects()), self._time_left()
            more = f", and {len(effects) - MOST_EFFECTS} more" if len(effects) > MOST_EFFECTS else ""
            state = ", ".join(effects[:MOST_EFFECTS]) + more or f"{self._valid} of {self._tried} valid"
            self._print_line(escape(f"block {self._block} of {self._blocks}  {state}  {left} left"))
        self._block = following

    def _list_effects(self) -> Iterator[str]:
        """Yield a line with the effect on CPU time per request so far, for each variant and load with at least three blocks.

        A block is a repetition of all measurements. The lines are only shown; the run does not depend on them.
        """
        metric = METRICS["cpu_per_request"]
        for (arm, point), blocks in self._costs.items():
            if len(blocks) >= MIN_BLOCKS_SHOWN:
                means = list(map(fmean, blocks.values()))
                estimate = stats.estimate_difference(means, [0.0] * len(means))
                ends = metric.ends(estimate.low, estimate.high)
                yield f"{arm} at {point} {metric.change(estimate.effect)}{ends}"

    def _render(self) -> Group:
        """Return what a terminal shows: the current measurement, the time left, and the effects on CPU time so far."""
        effects = list(self._list_effects())
        bar = ProgressBar(total=len(self._slots), completed=self._done, width=40)
        lines = [f"CPU per request so far: {text}" for text in effects[:MOST_LIVE]]
        lines += [f"and {len(effects) - MOST_LIVE} more"] if len(effects) > MOST_LIVE else []
        return Group(Text(f"{self._now}  {self._time_left()} left"), bar, *map(Text, lines))

    def _time_left(self) -> str:
        total = len(self._slots)
        left, completed = total - self._done, self._done - self._start_done
        spent_s = time.monotonic() - self._began
        left_s = spent_s / completed * left if completed else self._duration_s * left / max(1, total)
        minutes, seconds = divmod(int(left_s), 60)
        return f"{minutes}:{seconds:02d}"


def _name_arms(slot: Slot) -> str:
    """Return the name of the planned measurement's arm (a variant in the run), or of a pair's two arms as `A | B`."""
    return f"{slot.arm.name} | {slot.other}" if slot.against else slot.arm.name


class SearchTerminal(LineObserver):
    """The display of a search for the knee (the highest rate within a latency bound), with one line per trial."""

    def __init__(self, console: Console, record: RunRecord) -> None:
        super().__init__(console)
        self._record = record
        self._width = max(len(arm.name) for arm in record.arms)

    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None:
        """Print a line for a trial: the offered rate, the achieved rate, p99, and whether it passed.

        Args:
            slot: The planned measurement.
            sample: The sample.
            latency: The histogram of its latencies; None if nothing was measured.
            last: Whether this was the last attempt, so that the trial is not repeated.

        """
        trial = classify_trial(slot, sample, latency, self._record, passed_before=True)
        head = f"{slot.block:>4}  {slot.arm.name:<{self._width}}  {format_rate(slot.point.rate_rps):>9} req/s"
        achieved = format_rate(sample.achieved_rps)
        p99 = f"p99 {format_seconds(latency.quantile_s(0.99) if latency else None)}"
        style = {"pass": "green", "fail": "red", "unclear": "yellow", "broken": "red"}[trial.outcome]
        again = "" if last else ", measuring again"
        verdict = f"{trial.outcome}{f': {trial.why}' if trial.why else ''}{again}"
        self._print_line(f"{head}  {achieved:>9} achieved  {p99:<12}  [{style}]{escape(verdict)}[/]")
