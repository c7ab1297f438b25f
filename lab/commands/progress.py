"""The display of a run's progress on stderr: a bar with the time left, and a line per sample or trial."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import log
from statistics import fmean

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from lab.analysis.aggregate.cells import number_block
from lab.analysis.knee.report import classify_trial
from lab.base.errors import LabError
from lab.model.metrics import METRICS
from lab.model.plan import Plan, Slot
from lab.model.run import RunRecord
from lab.model.samples import Reason, Sample, key_of_measurement
from lab.stats import paired as stats
from lab.stats.histogram import Histogram
from lab.stats.units import format_rate, format_seconds
from lab.targets.readback import Reading

MIN_BLOCKS_SHOWN = 3
"""The number of blocks with pairs from which their effect so far is shown; as in the result, a block is one value."""


class LineObserver:
    """The base of the displays of progress: it prints which knobs failed to apply and which systems did not start."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begins(self, slot: Slot, attempt: int) -> None:
        """Ignore the beginning of a sample."""

    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None:
        """Print a line for each read-back that failed; the time that the start took is not printed."""
        for reading in readings:
            if not reading.ok:
                self._print_line(f"[red]not applied[/]  {slot.arm.name}: {escape(str(reading))}")

    def bringing_up_anew(self, slot: Slot, why: Sequence[str]) -> None:
        """Print the reasons why a slot's systems are replaced by freshly started ones."""
        message = f"{_name_arms(slot)} is brought up anew before {slot.point.name}: {'; '.join(why)}"
        self._print_line(f"       [yellow]{escape(message)}[/]")

    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None:
        """Ignore the two samples of a pair."""

    def failed(self, slot: Slot, error: LabError) -> None:
        """Print why a system did not come up."""
        self._print_line(f"[red]{slot.arm.name} did not come up[/] {escape(str(error))}")

    def _print_line(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


class RunTerminal(LineObserver):
    """The display of a run's progress, as an observer and a context manager.

    At the end of the context the bar disappears, and the lines stay.
    """

    def __init__(self, console: Console, plan: Plan, duration_s: float, done: int) -> None:
        super().__init__(console)
        self._slots, self._blocks, self._duration_s = plan.slots, plan.blocks, duration_s
        self._total = len(plan.slots)
        self._width = max(len(_name_arms(slot)) for slot in plan.slots)
        self._point_width = max(len(point.name) for point in plan.points)
        self._progress = Progress(
            TextColumn("{task.fields[now]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]} left"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            refresh_per_second=2,  # the display shares a CPU with the generator
        )
        self._task = self._progress.add_task("", total=self._total, completed=done, now="", left="")
        self._logs: dict[tuple[str, str], dict[int, list[float]]] = {}
        self._lost: set[Reason | None] = set()
        self._start_done, self._done, self._began = done, done, time.monotonic()

    def __enter__(self) -> RunTerminal:
        self._progress.start()
        self._show_activity("starting")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begins(self, slot: Slot, attempt: int) -> None:
        """Show the planned measurement next to the bar.

        Args:
            slot: The planned measurement.
            attempt: The number of the attempt, from 1; 0 while the system comes up.

        """
        again = f"  again ({attempt})" if attempt > 1 else ""
        doing = f"{slot.point.name}{again}" if attempt else "coming up"
        self._show_activity(f"block {slot.block}/{self._blocks}  {_name_arms(slot)}  {doing}")

    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None:
        """Print a line for a solo sample: rate, p99 and CPU per request, or the outcome of a disruption.

        Args:
            slot: The planned measurement.
            sample: The sample.
            latency: The histogram of its latencies; None where nothing was measured.
            last: Whether the measurement is not repeated.

        """
        rate = f"{format_rate(sample.achieved_rps)} req/s" if sample.achieved_rps is not None else "– req/s"
        p99 = f"p99 {format_seconds(latency.quantile_s(0.99) if latency else None)}"
        cpu = f"{_cost_text(sample)} µs/req"
        if sample.outcome:  # in place of the rate and the cost, which are not the subject of a disruption
            failed, gap_s = sample.outcome.get("failed") or 0, sample.outcome.get("gap_s")
            rate, cpu = f"{failed:,g} failed", f"gap {format_seconds(gap_s)}" if gap_s else "no gap"
        if sample.point.every_s is not None and sample.outcome:
            cut, cost_s = sample.outcome.get("cut") or 0, sample.outcome.get("cpu_per_event_s")
            rate, cpu = f"{cut:,g} cut", f"{METRICS['cpu_per_event_s'].text(cost_s)} µs/event"
        self._print_sample(slot, sample, f"{rate:>14}  {p99:<12}  {cpu:>13}", last)

    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None:
        """Print a line for a pair: the difference of CPU per request, and the arm's effect so far.

        Args:
            slot: The planned measurement.
            own: The sample of the slot's arm.
            base: The sample of the arm on the other side.
            last: Whether the measurement is not repeated.

        """
        cost_s, base_s = own.cpu_per_request_s, base.cpu_per_request_s
        change = METRICS["cpu_per_request"].change(log(cost_s / base_s)) if cost_s and base_s else "–"
        both = f"{_cost_text(own)} against {_cost_text(base)} µs/req"
        if own.valid and cost_s and base_s:
            blocks = self._logs.setdefault((slot.arm.name, slot.point.name), {})
            blocks.setdefault(number_block(slot.point, key_of_measurement(slot)), []).append(log(cost_s / base_s))
        self._print_sample(
            slot,
            own if not own.valid else base,
            f"CPU/req {change:>9}  {both:<28}",
            last,
            self._effect_so_far(slot),
        )

    def _effect_so_far(self, slot: Slot) -> str:
        """Return the effect that the arm's pairs show so far, or an empty text for too few blocks.

        It decides nothing: the number of blocks is fixed beforehand, and no run stops or continues because of it.
        """
        blocks = self._logs.get((slot.arm.name, slot.point.name), {})
        if len(blocks) < MIN_BLOCKS_SHOWN:
            return ""
        means, metric = list(map(fmean, blocks.values())), METRICS["cpu_per_request"]
        estimate, counted = stats.estimate_difference(means, [0.0] * len(means)), sum(map(len, blocks.values()))
        assert estimate.low is not None and estimate.high is not None, "two blocks have an interval"
        planned = sum(
            (item.arm, item.point, item.against) == (slot.arm, slot.point, slot.against) for item in self._slots
        )
        return f"  [dim]so far {metric.change(estimate.effect)}{escape(metric.ends(estimate.low, estimate.high))}, {counted} of {planned}[/]"

    def _print_sample(self, slot: Slot, sample: Sample, text: str, last: bool, effect: str = "") -> None:
        self._done += last
        block = f"{slot.block}/{self._blocks}" if slot.block else "–"
        head = f"{block:>5}  {_name_arms(slot):<{self._width}}  {slot.point.name:<{self._point_width}}"
        again = "" if last else " [yellow]measuring again[/]"
        verdict = "[green]valid[/]" if sample.valid else f"[red]invalid: {sample.reason}[/]{again}"
        self._print_line(f"{head}  {text}  {verdict}{effect}")
        if not sample.valid and sample.reason not in self._lost:  # once per reason
            self._lost.add(sample.reason)
            self._print_line(f"       [dim]{escape(sample.detail.splitlines()[0] if sample.detail else '')}[/]")
        self._progress.update(self._task, completed=self._done)

    def _show_activity(self, now: str) -> None:
        left, completed = self._total - self._done, self._done - self._start_done
        spent_s = time.monotonic() - self._began
        left_s = spent_s / completed * left if completed else self._duration_s * left / max(1, self._total)
        minutes, seconds = divmod(int(left_s), 60)
        self._progress.update(self._task, now=now, left=f"{minutes}:{seconds:02d}")


def _name_arms(slot: Slot) -> str:
    """Return the name of the slot's arm, or the names of a pair of arms."""
    return f"{slot.arm.name} | {slot.other}" if slot.against else slot.arm.name


def _cost_text(sample: Sample) -> str:
    cost_s = sample.cpu_per_request_s
    return f"{cost_s * 1e6:.1f}" if cost_s is not None else "–"


class SearchTerminal(LineObserver):
    """The observer of a search for the knee (highest rate within the latency bound): it prints a line per trial."""

    def __init__(self, console: Console, record: RunRecord) -> None:
        super().__init__(console)
        self._record = record
        self._width = max(len(arm.name) for arm in record.arms)

    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None:
        """Print a line for a trial: the rate, the achieved rate, p99 and the verdict.

        Args:
            slot: The planned measurement.
            sample: The sample.
            latency: The histogram of its latencies; None where nothing was measured.
            last: Whether the measurement is not repeated.

        """
        trial = classify_trial(slot, sample, latency, self._record, passed_before=True)
        head = f"{slot.block:>4}  {slot.arm.name:<{self._width}}  {format_rate(slot.point.rate_rps):>9} req/s"
        achieved = format_rate(sample.achieved_rps)
        p99 = f"p99 {format_seconds(latency.quantile_s(0.99) if latency else None)}"
        style = {"pass": "green", "fail": "red", "unclear": "yellow", "broken": "red"}[trial.outcome]
        again = "" if last else ", measuring again"
        verdict = f"{trial.outcome}{f': {trial.why}' if trial.why else ''}{again}"
        self._print_line(f"{head}  {achieved:>9} achieved  {p99:<12}  [{style}]{escape(verdict)}[/]")
