"""The verb `check`: which keys of a user's ingress-nginx configuration have an effect; nothing is measured."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from lab.base.handing import STDIN, piped_command, read_once
from lab.commands import Options, Verb, print_page


def _run_check(options: Options, talk: Console) -> None:
    from concurrent.futures import ProcessPoolExecutor

    from lab.experiments.configmap import reading, split

    place = "standard input" if options.file == STDIN else options.file
    reader = piped_command("check", "")
    given = reading.read_settings(place, read_once(options.file, reader), reader)
    with ProcessPoolExecutor(1) as other:
        other.submit(_describe_parts)  # its imports take half a second, in which this process sorts the keys
        report = other.submit(_describe_parts, place, given, split.sort_keys(place, given)).result()
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_page("check.txt", report=report, refused=f"{split.REFUSED}: ", file=options.file)


def _describe_parts(*parts: Any) -> dict[str, Any]:
    """Return what the verb `check` prints about a user's configuration file, as JSON data.

    All arguments are passed to `checking.describe_parts`, whose result is returned. A call without arguments only
    performs the slow imports in advance, and returns an empty mapping.
    """
    from lab.experiments.configmap import checking

    return checking.describe_parts(*parts) if parts else {}


CHECK = Verb(
    "list which keys of your ingress-nginx configuration do nothing, which are defaults, and what can be measured",
    _run_check,
    {
        "file": {
            "metavar": "FILE",
            "help": "a ConfigMap, Helm values with controller.config, or keys and values; - for the standard input",
        },
    },
    ("--json",),
    examples=(
        "just check data/examples/configmap.yaml",
        "just check values.yaml --json",
    ),
)
