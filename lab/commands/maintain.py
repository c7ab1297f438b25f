"""`maintain`: upkeep of the lab's own files: committed runs, generated texts, manifests, notebooks."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder, Verb

if TYPE_CHECKING:
    from lab.experiments.replaced import Version
    from lab.records.store import RunStore

ROOT = Path(__file__).parents[2]


def add(adder: Adder) -> None:
    verb = adder(_run_task, "upkeep of the lab's own files: committed runs, generated texts, manifests, notebooks")
    tasks = verb.add_subparsers(required=True, metavar="TASK", title="tasks")

    def add_task(name: str, function: Verb, about: str, **more: Any) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = tasks.add_parser(name, help=about, description=about, **more)
        added.set_defaults(task=function)
        return added

    pack = add_task("pack", _pack, "a finished run (or calibration) in few files: smaller, read sooner, the same to every verb")
    pack.add_argument("run", metavar="RUN")
    pack.add_argument(
        "--into",
        metavar="NAME",
        help="pack a copy of the run into data/reference/NAME: as a new reference, or as one more boot of the one that is there",
    )
    pack.add_argument(
        "--replace",
        action="store_true",
        help="with --into: let the run take the reference's place; the effects of what it replaces are kept in data/reference/history.csv",
    )
    add_task(
        "history",
        _write_history,
        "write the effects of every reference run that was replaced into data/reference/history.csv",
    )
    add_task("readme", _write_readmes, "write the generated parts of every README again")
    add_task("schema", _write_schemas, "write the JSON schemas of everything that the lab reads and records again")
    validate = add_task("validate", _validate_overlays, "hold overlays against Kubernetes' schemas, offline")
    validate.add_argument("overlays", nargs="*", metavar="OVERLAY", help="only these (default: every overlay)")
    # What looks like an option is Jupyter's: `+` begins none of ours.
    notebook = add_task(
        "notebook",
        _open_notebooks,
        "the studies' notebooks in Jupyter, from the committed runs",
        prefix_chars="+",
        add_help=False,
    )
    notebook.add_argument("arguments", nargs="*", metavar="ARG", help="for Jupyter, for example --no-browser")


def _run_task(options: argparse.Namespace, talk: Console) -> int:
    return int(options.task(options, talk))


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


def _write_history(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.history import known_runs, table_path
    from lab.experiments.replaced import record_replaced

    def told(version: Version, rows: int) -> None:
        talk.print(f"{version.folder}: {version.run}: {rows} effects", highlight=False, soft_wrap=True)

    added = record_replaced(told)
    print(f"{table_path()}: {len(known_runs())} replaced runs, {len(added)} of them new")
    return 0


def _write_readmes(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands.readme import parts, picture, texts

    makers = parts.makers()
    for path in texts.files():
        texts.write(path, makers)
    picture.PICTURE.write_text(picture.picture(parts.judged()))
    return 0


def _write_schemas(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import schema

    schema.write()
    return 0


def _validate_overlays(options: argparse.Namespace, talk: Console) -> int:
    return subprocess.run([ROOT / "scripts" / "validate", *options.overlays], check=False).returncode


def _open_notebooks(options: argparse.Namespace, talk: Console) -> int:
    """Become Jupyter."""
    jupyter = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={ROOT / 'notebooks'}", *options.arguments]
    os.execv(sys.executable, jupyter)
