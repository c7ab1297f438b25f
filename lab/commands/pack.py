"""`maintain pack`: a finished run's folder in few files, for a repository, or for good; and a run as one of data/reference."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder

if TYPE_CHECKING:
    from lab.records.store import RunStore


def add(adder: Adder) -> None:
    verb = adder(_pack, "a finished run (or calibration) in few files: smaller, read sooner, the same to every verb")
    verb.add_argument("run", metavar="RUN")
    verb.add_argument(
        "--into",
        metavar="NAME",
        help="pack a copy of the run into data/reference/NAME: as a new reference, or as one more boot of the one that is there",
    )
    verb.add_argument(
        "--replace",
        action="store_true",
        help="with --into: let the run take the reference's place; the effects of what it replaces are kept in data/reference/history.csv",
    )


def _pack(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.calibration import folder as calibrations
    from lab.analysis.calibration.packing import pack as pack_calibration
    from lab.records.packing import pack
    from lab.records.store import RunStore

    if options.replace and not options.into:
        raise UsageError("--replace", "says nothing without --into", "name the reference: --into NAME --replace")
    if calibrations.is_one(options.run):
        if options.into:
            raise UsageError("--into", "a calibration has no boots", "leave --into out")
        folder = calibrations.CalibrationFolder.open(options.run).folder
        before, after = pack_calibration(folder)
    elif options.into:
        return _pack_into(options, talk, RunStore.open(options.run))
    else:
        run = RunStore.open(options.run)
        folder = run.folder
        before, after = pack(run)
    print(f"{folder}: {before} → {after}")
    return 0


def _pack_into(options: argparse.Namespace, talk: Console, run: RunStore) -> int:
    from lab.analysis.history import add_rows, effects_of_run
    from lab.model.facts import git_commit
    from lab.records.packing import Size
    from lab.records.references import add_run, replace_run

    if options.replace:
        commit = git_commit() or ""

        def keep(old: RunStore, name: str) -> None:
            add_rows(effects_of_run(old, name, commit, commit))

        folder, notes = replace_run(run, options.into, keep), list[str]()
    else:
        folder, notes = add_run(run, options.into)
    for note in notes:
        talk.print(f"differs from the first boot: {note}", highlight=False, soft_wrap=True, markup=False)
    print(f"{folder}: {Size.of(folder)}")
    return 0
