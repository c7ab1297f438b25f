"""The verbs of the command line: the table of them, the table of their old spellings, and the parser made of the first.

What a verb needs is imported when it runs, so that `--help`, and a verb that measures nothing, answers at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lab.commands import (
    Adder,
    Parser,
    Verb,
    aa,
    ablate,
    bench,
    beside,
    calibrate,
    capacity,
    clusters,
    compare,
    export,
    gate,
    knee,
    ledger,
    look,
    maintain,
    migrate,
    report,
    sabotage,
    selfbench,
    study,
    table,
)

VERBS: Mapping[str, Callable[[Adder], None]] = {
    "aa": aa.add,
    "ablate": ablate.add,
    "bench": bench.add,
    "calibrate": calibrate.add,
    "capacity": capacity.add,
    "compare": compare.add,
    "doctor": look.add_doctor,
    "down": clusters.add_down,
    "export": export.add,
    "gate": gate.add,
    "knee": knee.add,
    "ledger": ledger.add,
    "list": look.add_list,
    "maintain": maintain.add,
    "migrate": migrate.add,
    "report": report.add,
    "sabotage": sabotage.add,
    "selfbench": selfbench.add,
    "show": look.add_show,
    "study": study.add,
    "table": table.add,
    "up": clusters.add_up,
    "with": beside.add,
}
"""Name of each verb → the function that adds its arguments."""

OLD_SPELLINGS: Mapping[str, str] = {
    "fmt": "lint --fix",
    "history": "maintain history",
    "notebook": "maintain notebook",
    "pack": "maintain pack",
    "readme": "maintain readme",
    "schema": "maintain schema",
    "usage": "table --usage",
    "validate": "maintain validate",
}
"""Recipes of `just` that this release still knows → the words that replace them, in front of the same arguments."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    top = Parser(
        prog="lab",
        description="A benchmark lab for ingress proxies: did the tuning step matter?",
    )
    verbs = top.add_subparsers(required=True, metavar="VERB", parser_class=Parser)

    def add_verb(name: str, function: Verb, about: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=about, description=about)
        added.set_defaults(verb=function)
        return added

    for name, add in VERBS.items():
        add(partial(add_verb, name))
    return top


def new_spelling(arguments: Sequence[str]) -> str | None:
    """Return the command that replaces one whose verb is an old spelling; None for every other command."""
    if not arguments or arguments[0] not in OLD_SPELLINGS:
        return None
    return " ".join(["just", OLD_SPELLINGS[arguments[0]], *arguments[1:]]).strip()
