"""The verb `maintain`: upkeep of the lab's files, namely committed runs, generated texts, manifests and notebooks."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Verb
from lab.model.facts import ROOT, read_git_commit


def _pack(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.history import add_rows, effects_of_run
    from lab.records.packing import FolderSize, pack
    from lab.records.references import add_run, replace_run
    from lab.records.store import RunStore
    from lab.systems.stand_ins import omit_defaults

    if options.replace and not options.into:
        raise UsageError("--replace", "says nothing without --into", "name the reference: --into NAME --replace")
    run = RunStore.open(options.run)
    if not options.into:
        before, after = pack(run)
        print(f"{run.folder}: {before} → {after}")
        return 0
    if options.replace:
        commit, notes = read_git_commit() or "", list[str]()
        folder = replace_run(run, options.into, lambda old, name: add_rows(effects_of_run(old, name, commit, commit)))
    else:
        folder, notes = add_run(run, options.into, omit_defaults)
    for note in notes:
        talk.print(f"differs from the first boot: {note}", highlight=False, soft_wrap=True, markup=False)
    print(f"{folder}: {FolderSize.of(folder)}")
    return 0


def _write_readmes(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import readme
    from lab.studies.settings import FILE
    from lab.studies.site.rows import draw_steps

    FILE.write_text(readme.make_settings_text())
    makers = readme.part_makers()
    for path in readme.markdown_files():
        path.write_text(readme.render_file(path, makers))
    readme.PICTURE.write_text(draw_steps(readme.judged_claims()))
    return 0


def _write_schemas(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import schema

    schema.write()
    return 0


def _validate_overlays(options: argparse.Namespace, talk: Console) -> int:
    return subprocess.run([ROOT / "scripts" / "validate", *options.variants], check=False).returncode


def _open_notebooks(options: argparse.Namespace, talk: Console) -> int:
    """Replace this process by Jupyter."""
    jupyter = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={ROOT / 'notebooks'}", *options.arguments]
    os.execv(sys.executable, jupyter)


MAINTAIN = Verb(
    "upkeep of the lab's own files: committed runs, generated texts, manifests, notebooks",
    None,
    words={
        "pack": Verb(
            "a finished run in few files: smaller, read sooner, the same to every verb",
            _pack,
            {
                "run": {"metavar": "RUN"},
                "--into": {
                    "metavar": "NAME",
                    "help": "pack a copy of the run into data/reference/NAME: as a new reference, or as one more boot of the one that is there",
                },
                "--replace": {
                    "action": "store_true",
                    "help": "with --into: let the run take the reference's place; the effects of what it replaces are kept in data/reference/history.csv",
                },
            },
        ),
        "readme": Verb("write the generated parts of every README, and data/settings.json, again", _write_readmes),
        "schema": Verb("write the JSON schemas of everything that the lab reads and records again", _write_schemas),
        "validate": Verb(
            "hold variants against Kubernetes' schemas, offline",
            _validate_overlays,
            {
                "variants": {
                    "nargs": "*",
                    "metavar": "VARIANT",
                    "help": "only these (default: every overlay and component, each once)",
                }
            },
        ),
        "notebook": Verb(
            "the studies' notebooks in Jupyter, from the committed runs",
            _open_notebooks,
            {"arguments": {"nargs": "*", "metavar": "ARG", "help": "for Jupyter, for example --no-browser"}},
            # All arguments belong to Jupyter, also those with a dash: the parser must not look for options.
            more={"prefix_chars": "+", "add_help": False},
        ),
    },
    metavar="TASK",
)
