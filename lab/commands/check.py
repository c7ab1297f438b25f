"""The verb `check`: what the keys of your ingress-nginx configuration do, without a measurement."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from lab.base.handing import STDIN, piped_command, read_once
from lab.commands import Verb, print_page


def _run_check(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.configmap import checking, reading
    from lab.experiments.configmap.split import REFUSED

    place = "standard input" if options.file == STDIN else options.file
    reader = piped_command("check", "")
    given = reading.read_settings(place, read_once(options.file, reader), reader)
    report = checking.check_file(place, given)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_page("check.txt", report=report, refused=f"{REFUSED}: ", file=options.file)
    return 0


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
