"""The verbs `list`, `show` and `doctor`: what can be measured, what a variant changes, what this machine lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console

from lab.commands import VARIANT, Options, Verb, print_lines
from lab.model.names import OUTPUT_WIDTH

STYLES = {"ok": "green", "missing": "bold red", "optional": "yellow"}
LINES_MOST = 25
"""The maximum number of lines of `just doctor` without `--all`."""


def _run_list(options: Options, talk: Console) -> None:
    from lab.commands import catalog

    if options.json:
        print(json.dumps(catalog.as_json(options.words), indent=1))
    else:
        catalog.print_list(Console(), options.words, options.all)


def _run_show(options: Options, talk: Console) -> None:
    from lab.commands import catalog

    if options.json:
        print(json.dumps(catalog.show_json(options.variant), indent=1))
    else:
        catalog.print_show(Console(), options.variant, options.all)


def doctor(console: Console, as_json: bool = False, everything: bool = False) -> int:
    """Print whether each target (where systems run) can be used on this machine, and what is missing.

    Nothing is installed or repaired.

    Args:
        console: The console.
        as_json: Whether to print all findings as JSON instead.
        everything: Whether to print every finding, also about what is not missing.

    Returns:
        The exit status: 0 if the default target can be used, else 2.

    """
    from lab.report.terminal import wrap_hanging
    from lab.targets import prerequisites

    findings, targets = prerequisites.make_checks(), prerequisites.TARGETS
    lacking = [finding for finding in findings if finding.status == "missing"]
    missing = {target: [finding.check for finding in lacking if target in finding.needed_by] for target in targets}
    if as_json:
        console.print_json(data=[{**asdict(finding), "status": finding.status} for finding in findings])
        return 2 if missing["local"] else 0
    fold = partial(wrap_hanging, console, indent=4, most=None if everything else OUTPUT_WIDTH)
    verdicts = {target: f"not ready, for want of {', '.join(missing[target])}" for target in targets if missing[target]}
    lines = [fold(f"--target {target}: {verdicts.get(target, 'ready')}") for target in targets]
    disks = [finding for finding in findings if finding.check.startswith("disk") and finding.ok]
    for finding in findings if everything else [*disks, *lacking]:
        needed_by = "all targets" if {*finding.needed_by} == {*targets} else ", ".join(finding.needed_by)
        remedy = "" if finding.ok else f" – {finding.remedy}"
        lines.append(fold(f"{finding.status}: {finding.check} (for {needed_by}): {finding.found}{remedy}"))
        lines[-1].stylize(STYLES[finding.status], 0, len(finding.status))
    optional = ", ".join(finding.check for finding in findings if finding.status == "optional")
    if optional and not everything:
        lines.append(fold(f"optional, and not here: {optional}; `just doctor --all` says what each is for"))
    print_lines(console, lines, None if everything else LINES_MOST, "just doctor")
    return 2 if missing["local"] else 0


ALL: Mapping[str, Any] = {"action": "store_true", "help": "print everything, however long that is"}
LIST = Verb(
    "list what can be measured: variants, knobs (single settings), sweeps (loads) and studies",
    _run_list,
    {
        "words": {
            "nargs": "*",
            "metavar": "WORD",
            "help": "variants, knobs, sweeps or studies for that kind alone, and words that an entry must contain, such as"
            " keep-alive (default: a short overview)",
        },
        "--all": ALL,
    },
    ("--json",),
    examples=("just list keep-alive", "just list sweeps", "just list knobs gzip --all"),
)
SHOW = Verb(
    "show what a variant changes, why, and how the running system is checked for it",
    _run_show,
    {"variant": VARIANT, "--all": ALL},
    ("--json",),
    examples=("just show keepalive", "just show ingress-nginx+use-gzip"),
)
DOCTOR = Verb(
    "check what this machine can measure, and print what is missing and how to get it",
    lambda options, _talk: doctor(Console(), options.json, options.all),
    {"--all": ALL},
    ("--json",),
    examples=("just doctor", "just doctor --all"),
)
