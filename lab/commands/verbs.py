"""The verbs of the command line: the table of them, the table of their old spellings, and the parser made of the first.

What a verb needs is imported when it runs, so that `--help`, and a verb that measures nothing, answers at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from lab.base.errors import UsageError
from lab.commands import (
    OPTIONS,
    Verb,
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
    table,
)

VERBS: Mapping[str, Verb] = {
    "aa": aa.AA,
    "ablate": ablate.ABLATE,
    "bench": bench.BENCH,
    "capacity": capacity.CAPACITY,
    "compare": table.COMPARE,
    "doctor": look.DOCTOR,
    "down": clusters.DOWN,
    "export": export.EXPORT,
    "gate": gate.GATE,
    "knee": knee.KNEE,
    "ledger": report.LEDGER,
    "list": look.LIST,
    "maintain": maintain.MAINTAIN,
    "migrate": migrate.MIGRATE,
    "report": report.REPORT,
    "sabotage": sabotage.SABOTAGE,
    "selfbench": selfbench.SELFBENCH,
    "show": look.SHOW,
    "study": bench.STUDY,
    "table": table.TABLE,
    "up": clusters.UP,
    "with": clusters.WITH,
}

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


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are the lab's own kind of error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.prog, message, f"`{self.prog} --help` shows the usage")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    top = Parser(prog="lab", description="A benchmark lab for ingress proxies: did the tuning step matter?")
    _add_words(top, Verb("", None, words=VERBS, metavar="VERB"))
    return top


def _add_words(above: argparse.ArgumentParser, verb: Verb) -> None:
    """Let one of the verb's words follow, each with its own arguments and words."""
    words = above.add_subparsers(required=verb.run is None, metavar=verb.metavar, parser_class=Parser)
    for name, word in verb.words.items():
        below = words.add_parser(name, help=word.about, description=word.about, **word.more)
        below.set_defaults(verb=word.run)
        for argument, told in {**word.takes, **{option: OPTIONS[option] for option in word.shared}}.items():
            below.add_argument(argument, **told)
        if word.add is not None:
            word.add(below)
        if word.words:
            _add_words(below, word)


def new_spelling(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return an old spelling and the command that replaces it; None where the verb is none."""
    word, *rest = arguments or [""]
    return (word, " ".join([OLD_SPELLINGS[word], *rest]).strip()) if word in OLD_SPELLINGS else None


def refuse_empty(options: argparse.Namespace) -> None:
    """UsageError for an argument that is there and empty, as of a variable that is not set: it would be taken for one that was left out.

    Of a command that is handed on (`with`), the program's name alone.
    """
    for name, value in vars(options).items():
        values = value[:1] if name == "command" else value if isinstance(value, list) else [value]
        if name != "argv" and "" in values:
            option = f"--{name.replace('_', '-')}"
            typed = any(word.partition("=")[0] == option for word in options.argv)
            place = option if typed else f"argument {name}"
            raise UsageError(place, "is empty", "give it a value, or leave it out: is a variable unset?")
