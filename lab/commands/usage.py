"""What `table --usage` prints: what the processes of a run's samples used, as pidstat shows it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError, refuse_unknown

if TYPE_CHECKING:
    from lab.model.samples import Sample
    from lab.records.store import RunStore


def print_usage(options: argparse.Namespace) -> int:
    from lab.records.store import RunStore
    from lab.report.json.answers import list_usage
    from lab.report.json.shape import dumps
    from lab.report.tables.usage import page
    from lab.report.terminal import show

    run = RunStore.open(options.run)
    chosen = _chosen(run, options.arm, options.point)
    memory = run.record.facts.get("memory_bytes", "")
    memory_bytes = int(memory) if memory.isdigit() else None
    if options.json:
        print(dumps([list_usage(each, run.usage(each), memory_bytes) for each in chosen]))
        return 0
    out = Console(soft_wrap=True, highlight=False)
    every_second = bool(options.arm and options.point)
    for sample in chosen:
        out.print(f"[bold cyan]{sample.arm}[/] at [bold cyan]{sample.point.name}[/], block {sample.block}")
        show(out, page(run.usage(sample), memory_bytes, every_second))
        out.print()
    return 0


def _chosen(run: RunStore, arm: str | None, point: str | None) -> list[Sample]:
    """Valid samples of the arm and point asked for; where neither is, the first of each pair."""
    samples = [sample for sample in run.samples() if sample.valid]
    for what, wanted, known in (
        ("--arm", arm, {sample.arm for sample in samples}),
        ("--point", point, {sample.point.name for sample in samples}),
    ):
        if wanted is not None:
            refuse_unknown(wanted, known, what, f"no valid sample of '{wanted}' in {run.record.id}")
    found = [sample for sample in samples if arm in (None, sample.arm) and point in (None, sample.point.name)]
    if not found:
        raise UsageError(run.record.id, "no valid sample of what was asked for", "`just table RUN` shows what there is")
    if arm and point:
        return found
    return list({(sample.arm, sample.point.name): sample for sample in reversed(found)}.values())[::-1]
