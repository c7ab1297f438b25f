"""The verbs `table` (the result of a stored run, or what its processes used) and `compare` (all metrics of one run or two)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError, refuse_if, refuse_unknown
from lab.commands import RUN_ARGUMENT, Options, Verb, arm_name, print_answer, refuse_given
from lab.commands.ablate import print_ablation
from lab.commands.knee import print_knee
from lab.commands.measuring import print_result

if TYPE_CHECKING:
    from lab.analysis.judge.comparison import Comparison


def _run_table(options: Options, talk: Console) -> int:
    from lab.experiments.ablation.folder import AblationStore, is_ablation
    from lab.records.store import Reparsed, RunStore

    if options.usage:
        refuse_given(options, ("from_raw", "all", "absolute", "markdown"), "changes nothing with --usage")
        return _print_usage(options)
    refuse_given(options, ("arm", "point"), "changes nothing without --usage")
    if is_ablation(options.run):
        refuse_if(options.from_raw, "table", "--from-raw is for runs, and this is an ablation", "name one of its runs")
        return print_ablation(options, AblationStore.open(options.run))
    run = RunStore.open(options.run)
    source = Reparsed.of(run) if options.from_raw else run
    return print_knee(options, source) if run.record.knee is not None else print_result(options, source)


def _print_usage(options: Options) -> int:
    """Print CPU, memory and page faults of the processes in a run's valid samples, and return 0.

    With `--arm` and `--point`, all samples of that arm (variant in the run) at that load are printed second by second.
    Otherwise the averages of the first valid sample of each arm and load are printed.
    """
    from lab.records.store import RunStore
    from lab.report.json.answers import list_usage
    from lab.report.json.shape import dumps
    from lab.report.tables.gauges import usage_page as page
    from lab.report.terminal import print_parts

    run, arm, point = RunStore.open(options.run), options.arm, options.point
    samples = [sample for sample in run.samples() if sample.valid]
    for option, value, values in (
        ("--arm", arm, {sample.arm for sample in samples}),
        ("--point", point, {sample.point.name for sample in samples}),
    ):
        if value is not None:
            refuse_unknown(value, values, option, f"no valid sample of '{value}' in {run.record.id}")
    chosen = [sample for sample in samples if arm in (None, sample.arm) and point in (None, sample.point.name)]
    refuse_if(
        not chosen, run.record.id, "no valid sample of what was asked for", "`just table RUN` shows what there is"
    )
    every_second = bool(arm and point)
    if not every_second:
        chosen = list({(sample.arm, sample.point.name): sample for sample in reversed(chosen)}.values())[::-1]
    memory = run.record.facts.get("memory_bytes", "")
    memory_bytes = int(memory) if memory.isdigit() else None
    if options.json:
        print(dumps([list_usage(sample, run.usage(sample), memory_bytes) for sample in chosen]))
        return 0
    out = Console(soft_wrap=True, highlight=False)
    for sample in chosen:
        out.print(f"[bold cyan]{sample.arm}[/] at [bold cyan]{sample.point.name}[/], block {sample.block}")
        print_parts(out, page(run.usage(sample), memory_bytes, every_second))
        out.print()
    return 0


def run_and_arm(text: str) -> tuple[str, str | None]:
    """Split `RUN:ARM` into the name of the run and the name of the arm (a variant in the run).

    The arm is None if the text has only a run. A colon in the path of an existing folder does not separate the two.

    Raises:
        UsageError: The run or the arm is empty.

    """
    run, colon, arm = text.rpartition(":")
    if not colon or ("/" in text and Path(text).is_dir()):
        return text, None
    refuse_if(not run or not arm, text, "expected RUN or RUN:ARM", "`just compare RUN:ARM RUN:ARM` compares two arms")
    return run, arm_name(arm)


def compare_named(names: Sequence[str], outcomes: Collection[str] = ()) -> Comparison:
    """Compare two runs with each other, or the variants of one run with their baselines.

    Args:
        names: One or two runs, each as RUN or RUN:ARM (one arm, that is one variant of the run).
        outcomes: The names of outcomes of disruptions to list even if they are 0 everywhere.

    """
    from lab.analysis.comparison.comparison import compare_runs
    from lab.records.store import RunStore

    (base, base_arm), *candidates = map(run_and_arm, names)
    second, second_arm = candidates[0] if candidates else (None, None)
    stores = RunStore.open(base), RunStore.open(second) if second is not None else None
    return compare_runs(*stores, base_arm, second_arm, asked=outcomes)


def _run_compare(options: Options, talk: Console) -> None:
    from lab.report.json.runs import COMPARISON
    from lab.report.tables.comparison import make_page

    if not 1 <= len(options.runs) <= 2:
        fault = f"expected one run or two, got {len(options.runs)}"
        raise UsageError("compare", fault, "just compare RUN, or just compare RUN RUN: first the base, then the other")
    comparison = compare_named(options.runs)
    print_answer(options, lambda: make_page(comparison), lambda: COMPARISON.dumps(comparison))


TABLE = Verb(
    "print the result of a stored run or ablation again, or what its processes used",
    _run_table,
    {
        "run": RUN_ARGUMENT,
        "--from-raw": {
            "action": "store_true",
            "help": "compute every number anew from the load generators' verbatim output",
        },
        "--all": {
            "action": "store_true",
            "help": "print every row, value and note, and the connections, files and memory that the systems hold",
        },
        "--absolute": {
            "action": "store_true",
            "help": "print all absolute values, also of variants whose difference is inconclusive",
        },
        "--usage": {
            "action": "store_true",
            "help": "print CPU, memory and page faults of each process and thread instead, as pidstat shows them",
        },
        "--arm": {
            "type": arm_name,
            "metavar": "ARM",
            "help": "with --usage: show only this arm of the run; ingress-nginx-again is the baseline's second measurement",
        },
        "--point": {
            "metavar": "POINT",
            "help": "with --usage: show only this load; together with --arm, every second of it",
        },
    },
    ("--json", "--markdown"),
    examples=(
        "just table data/reference/quick-keepalive",
        "just table data/reference/quick-keepalive --usage --arm keepalive",
    ),
)
COMPARE = Verb(
    "compare every metric of a run's variants with their baselines, or of two runs with each other",
    _run_compare,
    {
        "runs": {
            "nargs": "*",
            "metavar": "RUN[:ARM]",
            "help": "one run, or two: the baseline and the one that is compared with it; RUN:ARM is one arm of a run",
        }
    },
    ("--json", "--markdown"),
    examples=(
        "just compare data/reference/quick-keepalive",
        "just compare data/reference/knobs-local data/reference/quick-knobs",
    ),
)
