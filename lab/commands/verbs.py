"""The table of all verbs, the table of their old spellings, and the parser of the command line.

A verb imports what it needs when it runs, so that `--help` and verbs that measure nothing answer at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from shutil import get_terminal_size
from typing import NoReturn

from lab.base.errors import UsageError
from lab.commands import (
    OPTIONS,
    Options,
    Verb,
    aa,
    ablate,
    bench,
    capacity,
    check,
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
    settings,
    table,
)
from lab.model.names import OUTPUT_WIDTH

VERBS: Mapping[str, Verb] = {
    "aa": aa.AA,
    "ablate": ablate.ABLATE,
    "bench": bench.BENCH,
    "capacity": capacity.CAPACITY,
    "check": check.CHECK,
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
    "settings": settings.SETTINGS,
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
"""Former verb → the words that replace it; its arguments stay the same. A former verb is answered with its replacement."""

OLD_OPTIONS: Mapping[tuple[str, str], str] = {("bench", "--worth"): "--margin", ("table", "--notes"): "--all"}
"""(verb, option) → the option that replaces it; this release still accepts the old one."""


ALIASES: Mapping[str, Sequence[str]] = {"config": ("configmap",)}
"""An option → the other names under which it is given."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports wrong arguments as an error of the lab (UsageError)."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError with the message."""
        usage = f"`{self.prog} --help` shows the usage" if " " in self.prog else "`just` lists the verbs"
        raise UsageError(self.prog, message, usage)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the complete command line, with a subcommand for each verb."""
    top = Parser(prog="just", description="A benchmark lab for ingress proxies: did the tuning step matter?")
    _add_subcommands(top, Verb("", None, words=VERBS, metavar="VERB"))
    return top


def _add_subcommands(parent: argparse.ArgumentParser, verb: Verb) -> None:
    """Add the subcommands of a verb to its parser, with their arguments and subcommands."""
    subparsers = parent.add_subparsers(required=verb.run is None, metavar=verb.metavar, parser_class=Parser)
    layout = partial(argparse.RawDescriptionHelpFormatter, width=min(OUTPUT_WIDTH, get_terminal_size().columns) - 2)
    for name, subcommand in verb.words.items():
        child = subparsers.add_parser(
            name,
            help=subcommand.about,
            description=subcommand.about,
            epilog="\n  ".join(["for example:", *subcommand.examples]),
            formatter_class=layout,
            **subcommand.more,
        )
        child.set_defaults(verb=subcommand.run)
        for argument, keywords in {
            **subcommand.takes,
            **{option: OPTIONS[option] for option in subcommand.shared},
        }.items():
            child.add_argument(*argument.split(), **keywords)
        if subcommand.words:
            _add_subcommands(child, subcommand)


def new_spelling(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return the replacement of a former verb: `pack RUN` → ("pack", "maintain pack RUN"); None for other arguments.

    Args:
        arguments: The arguments of the command line.

    """
    verb, *arguments_after = arguments or [""]
    return (verb, " ".join([OLD_SPELLINGS[verb], *arguments_after]).strip()) if verb in OLD_SPELLINGS else None


def replace_old_options(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Replace the former names of options by their present names.

    Args:
        arguments: The arguments of the command line.

    Returns:
        The new arguments, and a pair (former name, present name) for each option that was replaced.

    """
    present, renamed = list[str](), list[tuple[str, str]]()
    for argument in arguments:
        option, equals, value = argument.partition("=")
        new = OLD_OPTIONS.get((arguments[0], option))
        renamed += [(option, new)] if new else []
        present.append(f"{new}{equals}{value}" if new else argument)
    return present, renamed


def refuse_empty(options: Options) -> None:
    """Raise an error if an argument is given but empty, for example because of an unset shell variable.

    An empty argument would otherwise be mistaken for one that was left out. In the verb `with`, the arguments of the
    user's command may be empty, but not the command itself.

    Raises:
        UsageError: An argument is empty.

    """
    for name, value in vars(options).items():
        values = value[:1] if name == "command" else value if isinstance(value, list) else [value]
        if name != "argv" and "" in values:
            named = {f"--{name.replace('_', '-')}", *(f"--{alias}" for alias in ALIASES.get(name, ()))}
            typed = next((word for item in options.argv if (word := item.partition("=")[0]) in named), "")
            place = typed or f"argument {name}"
            raise UsageError(place, "is empty", "give it a value, or leave it out: is a variable unset?")
