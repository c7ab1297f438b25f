"""`maintain`: upkeep of the lab's own files: committed runs, generated texts, manifests, notebooks."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lab.commands import Adder, Verb, pack
from lab.model.facts import ROOT

if TYPE_CHECKING:
    from lab.experiments.replaced import Version


def add(adder: Adder) -> None:
    verb = adder(_run_task, "upkeep of the lab's own files: committed runs, generated texts, manifests, notebooks")
    tasks = verb.add_subparsers(required=True, metavar="TASK", title="tasks")

    def add_task(name: str, function: Verb, about: str, **more: Any) -> argparse.ArgumentParser:
        added = tasks.add_parser(name, help=about, description=about, **more)
        added.set_defaults(task=function)
        return added

    pack.add(partial(add_task, "pack"))
    add_task("history", _write_history, "write the effects of replaced reference runs into data/reference/history.csv")
    add_task("readme", _write_readmes, "write the generated parts of every README again")
    add_task("schema", _write_schemas, "write the JSON schemas of everything that the lab reads and records again")
    validate = add_task("validate", _validate_overlays, "hold variants against Kubernetes' schemas, offline")
    validate.add_argument(
        "variants", nargs="*", metavar="VARIANT", help="only these (default: every overlay and component, each once)"
    )
    about = "the studies' notebooks in Jupyter, from the committed runs"
    # All of its arguments are Jupyter's, those that begin with a dash, too: no option of ours is looked for.
    notebook = add_task("notebook", _open_notebooks, about, prefix_chars="+", add_help=False)
    notebook.add_argument("arguments", nargs="*", metavar="ARG", help="for Jupyter, for example --no-browser")


def _run_task(options: argparse.Namespace, talk: Console) -> int:
    return int(options.task(options, talk))


def _write_history(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.history import known_runs, table_path
    from lab.experiments.replaced import record_replaced

    def told(version: Version, rows: int) -> None:
        talk.print(f"{version.folder}: {version.run}: {rows} effects", highlight=False, soft_wrap=True)

    added = record_replaced(told)
    print(f"{table_path()}: {len(known_runs())} replaced runs, {len(added)} of them new")
    return 0


def _write_readmes(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands.readme import parts, texts
    from lab.studies.site.picture import picture

    makers = parts.makers()
    for path in texts.files():
        path.write_text(texts.rendered(path, makers))
    parts.PICTURE.write_text(picture(parts.judged()))
    return 0


def _write_schemas(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import schema

    schema.write()
    return 0


def _validate_overlays(options: argparse.Namespace, talk: Console) -> int:
    return subprocess.run([ROOT / "scripts" / "validate", *options.variants], check=False).returncode


def _open_notebooks(options: argparse.Namespace, talk: Console) -> int:
    """Become Jupyter."""
    jupyter = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={ROOT / 'notebooks'}", *options.arguments]
    os.execv(sys.executable, jupyter)
