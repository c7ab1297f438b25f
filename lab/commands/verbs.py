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
    aa,
    ablate,
    bench,
    capacity,
    clusters,
    export,
    gate,
    knee,
    look,
    maintain,
    migrate,
    report,
    sabotage,
    selfbench,
    study,
    subcommands,
    table,
)

VERBS: Mapping[str, Callable[[Adder], None]] = {
    "aa": aa.add,
    "ablate": ablate.add,
    "bench": bench.add,
    "capacity": capacity.add,
    "compare": table.add_compare,
    "doctor": look.add_doctor,
    "down": clusters.add_down,
    "export": export.add,
    "gate": gate.add,
    "knee": knee.add,
    "ledger": report.add_ledger,
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
    "with": clusters.add_with,
}
"""Name of each verb → the function that adds its arguments."""

OLD_SPELLINGS: Mapping[str, str] = {
    "calibrate": "selfbench calibrate",
    "fmt": "lint --fix",
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
    add_verb = subcommands(top, "VERB")
    for name, add in VERBS.items():
        add(partial(add_verb, name))
    return top


def new_spelling(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return an old spelling and the command that replaces it; None where the verb is none."""
    word, *rest = arguments or [""]
    return (word, " ".join([OLD_SPELLINGS[word], *rest]).strip()) if word in OLD_SPELLINGS else None
