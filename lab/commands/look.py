"""The verbs `list`, `show` and `doctor`: what can be measured, what a variant changes, what this machine lacks."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich.console import Console

from lab.commands import VARIANT, Verb

STYLES = {"ok": "green", "missing": "bold red", "optional": "yellow"}


def _run_list(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import catalog

    if options.json:
        print(json.dumps(catalog.as_json(options.words), indent=1))
    else:
        catalog.print_list(Console(), options.words)
    return 0


def _run_show(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import catalog

    if options.json:
        print(json.dumps(catalog.show_json(options.variant), indent=1))
    else:
        catalog.print_show(Console(), options.variant)
    return 0


def _run_doctor(options: argparse.Namespace, talk: Console) -> int:
    return doctor(Console(), as_json=options.json)


def doctor(console: Console, as_json: bool = False) -> int:
    """Print every finding as a line, and whether each target can run here; repair nothing.

    Returns:
        The exit status: 0 when the default target can run here, else 2.

    """
    from lab.report.terminal import wrap_hanging
    from lab.targets import prerequisites

    findings, targets = prerequisites.make_checks(), prerequisites.TARGETS
    missing = {
        target: [finding.check for finding in findings if not finding.ok and target in finding.needed_by]
        for target in targets
    }
    if as_json:
        console.print_json(data=[{**asdict(finding), "status": finding.status} for finding in findings])
        return 2 if missing["local"] else 0
    needed = ["all" if {*finding.needed_by} == {*targets} else ", ".join(finding.needed_by) for finding in findings]
    check_width, needed_width = max(len(finding.check) for finding in findings), max(map(len, needed))
    console.print(
        f"{'check':<{check_width}}  {'needed by':<{needed_width}}  status    found, and the remedy",
        style="bold",
        soft_wrap=True,
    )
    for finding, needed_by in zip(findings, needed, strict=True):
        head = f"{finding.check:<{check_width}}  {needed_by:<{needed_width}}  "
        text = f"{finding.found}  {finding.remedy}" if not finding.ok else finding.found
        line = wrap_hanging(console, f"{head}{finding.status:<8}  {text}", 8)
        line.stylize(STYLES[finding.status], len(head), len(head) + len(finding.status))
        console.print(line, soft_wrap=True, highlight=False)
    console.print()
    for target, lacking in missing.items():
        verdict = f"[bold red]not here[/], for want of {', '.join(lacking)}" if lacking else "[green]ready[/]"
        console.print(f"--target {target}: {verdict}", soft_wrap=True, highlight=False)
    return 2 if missing["local"] else 0


LIST = Verb(
    "variants, knobs, sweeps and studies",
    _run_list,
    {"words": {"nargs": "*", "metavar": "WORD", "help": "only what has all of these words in it (default: all)"}},
    ("--json",),
)
SHOW = Verb("a variant: its knobs, read-backs and manifest diff", _run_show, {"variant": VARIANT}, ("--json",))
DOCTOR = Verb("try every prerequisite and say how to get what is missing", _run_doctor, shared=("--json",))
