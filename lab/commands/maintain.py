"""The verb `maintain`: upkeep of the lab's files, namely committed runs, generated texts, manifests and notebooks."""

from __future__ import annotations

import os
import subprocess
import sys

from rich.console import Console

from lab.commands import RUN_ARGUMENT, Options, Verb, refuse_given
from lab.model.facts import ROOT, read_git_commit


def _pack(options: Options, talk: Console) -> None:
    from lab.analysis.history import add_rows, effects_of_run
    from lab.records.packing import FolderSize, pack
    from lab.records.references import add_run, replace_run
    from lab.records.store import RunStore
    from lab.systems.stand_ins import omit_defaults

    if not options.into:
        refuse_given(options, ["replace"], "says nothing without --into", "name the reference: --into NAME --replace")
    run = RunStore.open(options.run)
    if not options.into:
        before, after = pack(run)
        print(f"{run.folder}: {before} → {after}")
        return
    if options.replace:
        commit, notes = read_git_commit() or "", list[str]()
        folder = replace_run(run, options.into, lambda old, name: add_rows(effects_of_run(old, name, commit, commit)))
    else:
        folder, notes = add_run(run, options.into, omit_defaults)
    for note in notes:
        talk.print(f"differs from the first boot: {note}", highlight=False, soft_wrap=True, markup=False)
    print(f"{folder}: {FolderSize.of(folder)}")


def _write_readmes(options: Options, talk: Console) -> None:
    from lab.commands import readme
    from lab.studies.settings import FILE
    from lab.studies.site.rows import draw_findings

    FILE.write_text(readme.make_settings_text())
    makers = readme.part_makers()
    for path in readme.markdown_files():
        path.write_text(readme.render_file(path, makers))
    readme.PICTURE.write_text(draw_findings(readme.judged_claims()))


def _write_schemas(options: Options, talk: Console) -> None:
    from lab.commands import schema

    schema.write()


def _validate_overlays(options: Options, talk: Console) -> int:
    return subprocess.run([ROOT / "scripts" / "validate", *options.variants], check=False).returncode


def _publish_notebooks(options: Options, talk: Console) -> None:
    from lab.studies.site.notebooks import render_pages

    for path, text in render_pages().items():
        path.write_text(text)


def _open_notebooks(options: Options, talk: Console) -> None:
    """Replace this process by JupyterLab, opened on the folder of notebooks."""
    jupyter = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={ROOT / 'notebooks'}", *options.arguments]
    os.execv(sys.executable, jupyter)


MAINTAIN = Verb(
    "maintain the lab's own files: committed runs, generated texts, schemas, manifests and notebooks",
    None,
    words={
        "pack": Verb(
            "store a finished run in few files: smaller and quicker to read, and the same to every verb",
            _pack,
            {
                "run": RUN_ARGUMENT,
                "--into": {
                    "metavar": "NAME",
                    "help": "pack a copy of the run into data/reference/NAME, as a new reference run or as one more boot of"
                    " the existing one",
                },
                "--replace": {
                    "action": "store_true",
                    "help": "with --into: replace the existing reference run; its effects are kept in data/reference/history.csv",
                },
            },
            examples=("just maintain pack RUN", "just maintain pack RUN --into keepalive-pairs --replace"),
        ),
        "readme": Verb(
            "write the generated parts of every README, and data/settings.json, anew",
            _write_readmes,
            examples=("just maintain readme",),
        ),
        "schema": Verb(
            "write the JSON schemas of everything that the lab reads and records anew",
            _write_schemas,
            examples=("just maintain schema",),
        ),
        "publish": Verb(
            "execute notebooks, and write them as Markdown with figures, which GitHub shows",
            _publish_notebooks,
            examples=("just maintain publish",),
        ),
        "validate": Verb(
            "check variants against the schemas of Kubernetes, offline",
            _validate_overlays,
            {
                "variants": {
                    "nargs": "*",
                    "metavar": "VARIANT",
                    "help": "check only these variants (default: every overlay and component, each once)",
                }
            },
            examples=("just maintain validate", "just maintain validate keepalive"),
        ),
        "notebook": Verb(
            "open the notebooks in Jupyter",
            _open_notebooks,
            {"arguments": {"nargs": "*", "metavar": "ARG", "help": "an argument of Jupyter's, such as --no-browser"}},
            examples=("just maintain notebook", "just maintain notebook --no-browser"),
            # All arguments belong to Jupyter, also those with a dash: the parser must not look for options.
            more={"prefix_chars": "+", "add_help": False},
        ),
    },
    metavar="TASK",
    examples=("just maintain readme", "just maintain validate keepalive"),
)
