"""`history`: effects of the reference runs that were replaced, read from git."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from lab.commands import Adder

if TYPE_CHECKING:
    from lab.experiments.replaced import Version


def add(adder: Adder) -> None:
    adder(
        "history",
        _history,
        "write the effects of every reference run that was replaced into data/reference/history.csv",
    )


def _history(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.history import known_runs, table_path
    from lab.experiments.replaced import record_replaced

    def told(version: Version, rows: int) -> None:
        talk.print(f"{version.folder}: {version.run}: {rows} effects", highlight=False, soft_wrap=True)

    added = record_replaced(told)
    print(f"{table_path()}: {len(known_runs())} replaced runs, {len(added)} of them new")
    return 0
