"""`table`, `compare`: a run's or an ablation's result again, what its processes used as pidstat shows it, and every metric side by side."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError, refuse_unknown
from lab.commands import STORED, Verb, arm_name, print_answer
from lab.commands.ablate import print_ablation
from lab.commands.knee import print_knee
from lab.commands.measuring import print_result

if TYPE_CHECKING:
    from lab.analysis.judge.comparison import Comparison


def _table(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.ablation.folder import AblationStore, is_ablation
    from lab.records.store import Reparsed, RunStore

    for name in ("from_raw", "notes", "markdown") if options.usage else ("arm", "point"):
        if getattr(options, name):
            beside = "beside" if options.usage else "without"
            raise UsageError(f"--{name.replace('_', '-')}", f"says nothing {beside} --usage", "leave it out")
    if options.usage:
        return _print_usage(options)
    if is_ablation(options.run):
        if options.from_raw:
            raise UsageError("table", "--from-raw is for runs, and this is an ablation", "name one of its runs")
        return print_ablation(options, AblationStore.open(options.run))
    run = RunStore.open(options.run)
    shown = Reparsed.of(run) if options.from_raw else run
    return print_knee(options, shown) if run.record.knee is not None else print_result(options, shown)


def _print_usage(options: argparse.Namespace) -> int:
    """Of the valid samples of the arm and point asked for; where one of them is not, of the first of each arm and point."""
    from lab.records.store import RunStore
    from lab.report.json.answers import list_usage
    from lab.report.json.shape import dumps
    from lab.report.tables.gauges import usage_page as page
    from lab.report.terminal import show

    run, arm, point = RunStore.open(options.run), options.arm, options.point
    samples = [sample for sample in run.samples() if sample.valid]
    for what, wanted, known in (
        ("--arm", arm, {sample.arm for sample in samples}),
        ("--point", point, {sample.point.name for sample in samples}),
    ):
        if wanted is not None:
            refuse_unknown(wanted, known, what, f"no valid sample of '{wanted}' in {run.record.id}")
    chosen = [sample for sample in samples if arm in (None, sample.arm) and point in (None, sample.point.name)]
    if not chosen:
        raise UsageError(run.record.id, "no valid sample of what was asked for", "`just table RUN` shows what there is")
    every_second = bool(arm and point)
    if not every_second:
        chosen = list({(sample.arm, sample.point.name): sample for sample in reversed(chosen)}.values())[::-1]
    memory = run.record.facts.get("memory_bytes", "")
    memory_bytes = int(memory) if memory.isdigit() else None
    if options.json:
        print(dumps([list_usage(each, run.usage(each), memory_bytes) for each in chosen]))
        return 0
    out = Console(soft_wrap=True, highlight=False)
    for sample in chosen:
        out.print(f"[bold cyan]{sample.arm}[/] at [bold cyan]{sample.point.name}[/], block {sample.block}")
        show(out, page(run.usage(sample), memory_bytes, every_second))
        out.print()
    return 0


def run_and_arm(text: str) -> tuple[str, str | None]:
    """`RUN:ARM` → (RUN, ARM); a folder's own colon is none of these. UsageError for an empty half."""
    run, colon, arm = text.rpartition(":")
    if not colon or ("/" in text and Path(text).is_dir()):
        return text, None
    if not run or not arm:
        raise UsageError(text, "expected RUN or RUN:ARM", "`just compare RUN:ARM RUN:ARM` compares two arms")
    return run, arm_name(arm)


def compared(names: Sequence[str], asked: Collection[str] = ()) -> Comparison:
    """Compare two runs that are named, each as RUN or RUN:ARM, or one by its own baselines. `asked`: as `compare_runs` has it."""
    from lab.analysis.comparison.comparison import compare_runs
    from lab.records.store import RunStore

    (base, base_arm), *others = map(run_and_arm, names)
    other, other_arm = others[0] if others else (None, None)
    stores = RunStore.open(base), RunStore.open(other) if other is not None else None
    return compare_runs(*stores, base_arm, other_arm, asked=asked)


def _compare(options: argparse.Namespace, talk: Console) -> int:
    from lab.report.json.runs import COMPARISON
    from lab.report.tables.comparison import page

    if not 1 <= len(options.runs) <= 2:
        fault = f"expected one run or two, got {len(options.runs)}"
        raise UsageError("compare", fault, "just compare RUN, or just compare RUN RUN: first the base, then the other")
    found = compared(options.runs)
    print_answer(options, lambda: page(found), lambda: COMPARISON.dumps(found))
    return 0


TABLE = Verb(
    "print a run's table again, or an ablation's",
    _table,
    {
        "run": STORED,
        "--from-raw": {"action": "store_true", "help": "recompute every number from the verbatim output"},
        "--notes": {"action": "store_true", "help": "with all notes, and what the systems hold"},
        "--usage": {
            "action": "store_true",
            "help": "instead: CPU, memory and page faults of each process and thread, as pidstat shows them",
        },
        "--arm": {
            "type": arm_name,
            "metavar": "ARM",
            "help": "with --usage: of one variant only (ingress-nginx-again for its second measurement)",
        },
        "--point": {
            "metavar": "POINT",
            "help": "with --usage: at one load only; together with --arm every second is shown",
        },
    },
    ("--json", "--markdown"),
)
COMPARE = Verb(
    "every metric of a run's variants against their baselines, or of two runs against each other",
    _compare,
    {"runs": {"nargs": "*", "metavar": "RUN[:ARM]", "help": "a run's name or folder; the second is the `other` side"}},
    ("--json", "--markdown"),
)
