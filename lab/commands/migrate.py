"""`migrate`: what the successors of ingress-nginx do with your settings, and which traps lie in between."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.base.errors import UsageError
from lab.base.handing import STDIN, read_once
from lab.commands import Adder
from lab.commands.answers import print_answer


def add(adder: Adder) -> None:
    verb = adder("migrate", _migrate, "what ingress-nginx's successors do with your settings, and the traps in between")
    verb.add_argument(
        "--configmap",
        metavar="FILE",
        help="your ingress-nginx ConfigMap or Helm values, in any form that bench takes (- = standard input)",
    )
    verb.add_argument(
        "--ingress",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="Ingress objects, whose annotations are settings, too",
    )
    verb.add_argument(
        "--to",
        metavar="SYSTEM",
        nargs="+",
        action="extend",
        default=[],
        help="the successors (default: all that have a table)",
    )
    verb.add_argument("--plan", action="store_true", help="print the mapping and the traps, and measure nothing")
    verb.add_argument("--json", action="store_true", help="print it as JSON")
    verb.add_argument("--markdown", action="store_true")


def _migrate(options: argparse.Namespace, talk: Console) -> int:
    if not options.configmap:
        raise UsageError("migrate", "no file", "give it: --configmap FILE, or - for the standard input")
    if not options.plan:
        raise UsageError("migrate", "measures nothing yet", "ask for the mapping and the traps: --plan")
    files = [options.configmap, *options.ingress]
    if files.count(STDIN) > 1:
        raise UsageError("migrate", "two files are the standard input", "give one of them by its name")
    from lab.experiments.migration.plan import plan
    from lab.report.json.migration import printed
    from lab.report.tables.migration import page

    first, *others = ((_place(name), read_once(name)) for name in files)
    found = plan(*first, others, options.to)
    said = found.place, found.given, found.unknown, found.notes, found.migrations
    print_answer(options, lambda: page(*said), lambda: printed(*said).dumps())
    return 0


def _place(name: str) -> str:
    return "standard input" if name == STDIN else name
