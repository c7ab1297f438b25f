"""`pack`: a finished run's folder in few files, for a repository, or for good."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.commands import Adder


def add(adder: Adder) -> None:
    verb = adder(
        "pack", _pack, "a finished run (or calibration) in few files: smaller, read sooner, the same to every verb"
    )
    verb.add_argument("run", metavar="RUN")


def _pack(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.calibration import folder as calibrations
    from lab.analysis.calibration.packing import pack as pack_calibration
    from lab.records.packing import pack
    from lab.records.store import RunStore

    if calibrations.is_one(options.run):
        folder = calibrations.CalibrationFolder.open(options.run).folder
        before, after = pack_calibration(folder)
    else:
        run = RunStore.open(options.run)
        folder = run.folder
        before, after = pack(run)
    print(f"{folder}: {before} → {after}")
    return 0
