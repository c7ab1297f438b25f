"""`compare`: every metric of a run, or of two runs, side by side."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder, print_answer
from lab.commands.arguments import add_options, arm_name

ABOUT = "every metric of a run's variants against their baselines, or of two runs against each other"


def add(adder: Adder) -> None:
    verb = adder(_compare, ABOUT)
    verb.add_argument(
        "runs", nargs="*", metavar="RUN[:ARM]", help="a run's name or folder; the second is the `other` side"
    )
    add_options(verb, "--json", "--markdown")


def run_and_arm(text: str) -> tuple[str, str | None]:
    """`RUN:ARM` → (RUN, ARM); a folder's own colon is none of these. UsageError for an empty half."""
    from pathlib import Path

    run, colon, arm = text.rpartition(":")
    if not colon or ("/" in text and Path(text).is_dir()):
        return text, None
    if not run or not arm:
        raise UsageError(text, "expected RUN or RUN:ARM", "`just compare RUN:ARM RUN:ARM` compares two arms")
    return run, arm_name(arm)


def _compare(options: argparse.Namespace, talk: Console) -> int:
    if not 1 <= len(options.runs) <= 2:
        fault = f"expected one run or two, got {len(options.runs)}"
        raise UsageError("compare", fault, "just compare RUN, or just compare RUN RUN: first the base, then the other")

    from lab.analysis.comparison.comparison import compare_runs
    from lab.records.store import RunStore
    from lab.report.json.runs import COMPARISON
    from lab.report.tables.comparison import page

    named = [run_and_arm(text) for text in options.runs]
    stores = [RunStore.open(name) for name, _ in named]
    (_, base_arm), (_, other_arm) = named[0], named[-1] if len(named) > 1 else ("", None)
    found = compare_runs(stores[0], stores[1] if len(stores) > 1 else None, base_arm, other_arm)
    print_answer(options, lambda: page(found), lambda: COMPARISON.dumps(found))
    return 0
