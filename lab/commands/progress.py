"""What a person sees while a run is measured: a bar with the time left, and a line per sample; of a search, per trial. All on stderr."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import log
from statistics import fmean

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from lab.analysis.aggregate.cells import block_of
from lab.analysis.knee.report import tried
from lab.base.errors import LabError
from lab.model.metrics import METRICS
from lab.model.plan import Plan, Slot
from lab.model.run import RunRecord
from lab.model.samples import Reason, Sample, cell
from lab.stats import paired as stats
from lab.stats.histogram import Histogram
from lab.stats.units import format_rate, format_seconds
from lab.targets.readback import Reading

SOME = 3
"""Blocks with pairs from which on it is shown what they have shown so far: as in the end, a block is one value."""


class Lines:
    """What any observer tells: what a knob did not do, and what did not come up."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begins(self, slot: Slot, attempt: int) -> None: ...

    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None:
        for reading in readings:
            if not reading.ok:
                self._line(f"[red]not applied[/]  {slot.arm.name}: {escape(str(reading))}")

    def bringing_up_anew(self, slot: Slot, why: Sequence[str]) -> None:
        said = f"{_who(slot)} is brought up anew before {slot.point.name}: {'; '.join(why)}"
        self._line(f"       [yellow]{escape(said)}[/]")

    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None: ...

    def failed(self, slot: Slot, error: LabError) -> None:
        self._line(f"[red]{slot.arm.name} did not come up[/] {escape(str(error))}")

    def _line(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


class Terminal(Lines):
    """The observer of a run. A context manager: the bar is gone afterwards, the lines stay."""

    def __init__(self, console: Console, plan: Plan, duration_s: float, done: int) -> None:
        super().__init__(console)
        self._slots, self._blocks, self._duration_s = plan.slots, plan.blocks, duration_s
        self._total = len(plan.slots)
        self._width = max(len(_who(slot)) for slot in plan.slots)
        self._point_width = max(len(point.name) for point in plan.points)
        self._progress = Progress(
            TextColumn("{task.fields[now]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]} left"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            refresh_per_second=2,  # it shares the generator's CPU
        )
        self._task = self._progress.add_task("", total=self._total, completed=done, now="", left="")
        self._logs: dict[tuple[str, str], dict[int, list[float]]] = {}
        self._lost: set[Reason | None] = set()
        self._start_done, self._done, self._began = done, done, time.monotonic()

    def __enter__(self) -> Terminal:
        self._progress.start()
        self._show("starting")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begins(self, slot: Slot, attempt: int) -> None:
        again = f"  again ({attempt})" if attempt > 1 else ""
        doing = f"{slot.point.name}{again}" if attempt else "coming up"
        self._show(f"block {slot.block}/{self._blocks}  {_who(slot)}  {doing}")

    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None:
        rate = f"{format_rate(sample.achieved_rps)} req/s" if sample.achieved_rps is not None else "– req/s"
        p99 = f"p99 {format_seconds(latency.quantile_s(0.99) if latency else None)}"
        cpu = f"{_cost_text(sample)} µs/req"
        if sample.outcome:  # what a rate cannot tell
            failed, gap_s = sample.outcome.get("failed") or 0, sample.outcome.get("gap_s")
            rate, cpu = f"{failed:,g} failed", f"gap {format_seconds(gap_s)}" if gap_s else "no gap"
        self._told(slot, sample, f"{rate:>14}  {p99:<12}  {cpu:>13}", last)

    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None:
        cost_s, base_s = own.cpu_per_request_s, base.cpu_per_request_s
        change = METRICS["cpu_per_request"].change(log(cost_s / base_s)) if cost_s and base_s else "–"
        both = f"{_cost_text(own)} against {_cost_text(base)} µs/req"
        if own.valid and cost_s and base_s:
            blocks = self._logs.setdefault((slot.arm.name, slot.point.name), {})
            blocks.setdefault(block_of(slot.point, cell(slot)), []).append(log(cost_s / base_s))
        self._told(slot, own if not own.valid else base, f"CPU/req {change:>9}  {both:<28}", last, self._so_far(slot))

    def _so_far(self, slot: Slot) -> str:
        """What its pairs have shown, which is no decision: how many there will be was fixed before, and nothing stops or goes on by it."""
        blocks = self._logs.get((slot.arm.name, slot.point.name), {})
        if len(blocks) < SOME:
            return ""
        means, metric = list(map(fmean, blocks.values())), METRICS["cpu_per_request"]
        known, counted = stats.difference(means, [0.0] * len(means)), sum(map(len, blocks.values()))
        assert known.low is not None and known.high is not None, "two blocks have an interval"
        planned = sum(
            (each.arm, each.point, each.against) == (slot.arm, slot.point, slot.against) for each in self._slots
        )
        return f"  [dim]so far {metric.change(known.effect)}{escape(metric.ends(known.low, known.high))}, {counted} of {planned}[/]"

    def _told(self, slot: Slot, sample: Sample, said: str, last: bool, known: str = "") -> None:
        self._done += last
        block = f"{slot.block}/{self._blocks}" if slot.block else "–"
        head = f"{block:>5}  {_who(slot):<{self._width}}  {slot.point.name:<{self._point_width}}"
        again = "" if last else " [yellow]measuring again[/]"
        verdict = "[green]valid[/]" if sample.valid else f"[red]invalid: {sample.reason}[/]{again}"
        self._line(f"{head}  {said}  {verdict}{known}")
        if not sample.valid and sample.reason not in self._lost:  # once per reason
            self._lost.add(sample.reason)
            self._line(f"       [dim]{escape(sample.detail.splitlines()[0] if sample.detail else '')}[/]")
        self._progress.update(self._task, completed=self._done)

    def _show(self, now: str) -> None:
        left, here = self._total - self._done, self._done - self._start_done
        spent_s = time.monotonic() - self._began
        left_s = spent_s / here * left if here else self._duration_s * left / max(1, self._total)
        minutes, seconds = divmod(int(left_s), 60)
        self._progress.update(self._task, now=now, left=f"{minutes}:{seconds:02d}")


def _who(slot: Slot) -> str:
    """What comes up: an arm, or a pair of them."""
    return f"{slot.arm.name} | {slot.other}" if slot.against else slot.arm.name


def _cost_text(sample: Sample) -> str:
    cost_s = sample.cpu_per_request_s
    return f"{cost_s * 1e6:.1f}" if cost_s is not None else "–"


class Trials(Lines):
    """The observer of a search: a line per trial."""

    def __init__(self, console: Console, record: RunRecord) -> None:
        super().__init__(console)
        self._record = record
        self._width = max(len(arm.name) for arm in record.arms)

    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None:
        found = tried(slot, sample, latency, self._record, passed_before=True)
        head = f"{slot.block:>4}  {slot.arm.name:<{self._width}}  {format_rate(slot.point.rate_rps):>9} req/s"
        achieved = format_rate(sample.achieved_rps)
        p99 = f"p99 {format_seconds(latency.quantile_s(0.99) if latency else None)}"
        style = {"pass": "green", "fail": "red", "unclear": "yellow", "broken": "red"}[found.outcome]
        again = "" if last else ", measuring again"
        said = f"{found.outcome}{f': {found.why}' if found.why else ''}{again}"
        self._line(f"{head}  {achieved:>9} achieved  {p99:<12}  [{style}]{escape(said)}[/]")
