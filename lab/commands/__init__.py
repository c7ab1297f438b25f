"""Verbs of the command line, one module each or a few related ones: their arguments, and what they print.

`verbs` has the table of them. Only these modules and `lab/__main__.py` parse arguments and print.
Only `__main__` exits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from lab.base.errors import UsageError, refuse_unknown
from lab.base.quantities import parse_share, whole_number_in

if TYPE_CHECKING:
    from lab.experiments.bench.request import Resolve
    from lab.report.grid import Part

RunVerb = Callable[[argparse.Namespace, Console], int]
"""The type of functions that run a verb: they take the options and the console of stderr, and return the exit status.

Answers go to stdout.
"""
Arguments = Mapping[str, Mapping[str, Any]]
"""The arguments of a verb, each with the keyword arguments of argparse's `add_argument`."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the command line, such as `bench`, or a subcommand of a verb.

    Attributes:
        about: A short description, for the help.
        run: The function that runs the verb; None if a subcommand must follow.
        takes: The arguments that only this verb has.
        shared: The names of its arguments that several verbs share (`OPTIONS`).
        words: The subcommands by name.
        metavar: The name of the subcommands in the help.
        more: Further keyword arguments for the creation of the verb's argparse parser.
        add: A function that adds further arguments to this parser; None for none.

    """

    about: str
    run: RunVerb | None
    takes: Arguments = field(default_factory=dict[str, Mapping[str, Any]])
    shared: Sequence[str] = ()
    words: Mapping[str, Verb] = field(default_factory=dict[str, "Verb"])
    metavar: str = ""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    add: Callable[[argparse.ArgumentParser], None] | None = None


class RanInsideError(Exception):
    """The signal that the same command has run in its target's namespaces: this process has nothing more to do.

    `status` is the exit status of that command.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


# -- arguments that several verbs take -----------------------------------------------------------------------

BLOCKS_MOST = 1000
K6_OUT = ("summary", "csv", "json")
"""The values of `lab.generators.k6.Out`, repeated here because importing them would load polars for `--help`."""


def variant_name(text: str) -> str:
    """Convert the name of a variant in an argument, old or new, into the present name."""
    from lab.model.variants.naming import find_present_name

    return find_present_name(text)


def arm_name(text: str) -> str:
    """Convert the name of a run's arm in an argument, old or new, into the present name."""
    from lab.model.variants.naming import present_arm

    return present_arm(text)


def fraction(place: str, text: str) -> float:
    """Parse a share, written as `5%` or `0.05`, into 0.05.

    Args:
        place: The place of the error, such as `--margin`.
        text: The share as written.

    Raises:
        UsageError: The text is no share between 0 and 1, both excluded.

    """
    value = parse_share(text)
    if value is None:
        raise UsageError(place, f"expected a share, got '{text}'", "as 5% or 0.05")
    if not 0 < value < 1:
        is_percent = "%" not in text and 1 <= value < 100
        near = f"did you mean {text.strip()}%?" if is_percent else "more than 0 and less than 100%, as 5% or 0.05"
        raise UsageError(place, f"{text} is no share of that kind", near)
    return value


def one_of(place: str, noun: str, names: Collection[str]) -> Callable[[str], str]:
    """Return a converter of an option's text that accepts only certain names.

    The converter raises a UsageError for any other text.

    Args:
        place: The place of the error.
        noun: What a name stands for (`metric`), for the error.
        names: The accepted names.

    """

    def convert(text: str) -> str:
        refuse_unknown(text, names, place, f"unknown {noun} '{text}'")
        return text

    return convert


def _parse_resolve(text: str) -> Resolve:
    from lab.experiments.bench.request import parse_resolve

    return parse_resolve(text)


VARIANT: Mapping[str, Any] = {
    "type": variant_name,
    "metavar": "VARIANT",
    "help": "an overlay, a component alone, or BASELINE+KNOB+KNOB; former names work, too",
}
RUN_ARGUMENT: Mapping[str, Any] = {
    "metavar": "RUN",
    "help": "by its name in data/runs, or its folder (data/reference/…: the committed ones)",
}
"""The argument that names a stored run."""
OPTIONS: Arguments = {
    "--target": {"help": "where it runs, of those that `just doctor` tries (default: local)"},
    "--context": {"metavar": "NAME", "help": "of --target remote: the kubeconfig's context, never the current one"},
    "--blocks": {"type": whole_number_in("--blocks", 1, BLOCKS_MOST), "help": "how often each is measured"},
    "--seed": {
        "type": whole_number_in("--seed", 0, 2**31 - 1),
        "help": "seed for the randomized order (default: random)",
    },
    "--plan": {"action": "store_true", "help": "print the plan and stop; with --json, as JSON"},
    "--json": {"action": "store_true", "help": "print it as JSON"},
    "--markdown": {"action": "store_true", "help": "print it as Markdown"},
    "--k6-out": {
        "choices": K6_OUT,
        "help": "keep k6's own output beside each sample, for `just export RUN --what k6`: its summary, or also a row for every"
        " number as CSV or JSON lines, which costs k6 CPU that a closed loop lacks; never compare such a run with one without",
    },
    "--sustained": {
        "action": "store_true",
        "help": "make every sample 180 s long, without a warm-up and without pairs, to show what comes after a proxy's local ports have run"
        " out; effects are shown in each third of it; loads that end by a number of requests, or are disturbed, stay as they are",
    },
    "--resolve": {
        "type": _parse_resolve,
        "metavar": "5%[,METRIC]",
        "help": "as many blocks as find such an effect in the variants' primary metric (or METRIC) with 90 %% probability,"
        " by the noise that an earlier run found here (see aa)",
    },
    "--traffic": {
        "metavar": "LOG|RUN",
        "help": "load with the mix of requests of an access log (- = standard input): common, combined, ingress-nginx, Traefik, Envoy,"
        " HAProxy or JSON; or with that of an earlier run. Its hosts and paths become numbers, and nothing else of it is kept",
    },
    "--traffic-rate": {
        "type": whole_number_in("--traffic-rate", 1, 1_000_000),
        "metavar": "REQ/S",
        "help": "with --traffic: the rate that the log's arrivals are scaled to (default: the log's mean rate)",
    },
    "--margin": {
        "type": partial(fraction, "--margin"),
        "metavar": "2%",
        "help": "the equivalence margin (default: 2%%): effects whose interval lies within it do not matter",
    },
}
"""The arguments that several verbs take, with the keyword arguments of argparse's `add_argument`."""
TARGETED = ("--target", "--context")
MEASURING = (*TARGETED, "--blocks", "--seed", "--plan", "--json")
"""The arguments of every verb that measures a run."""


def refuse_blocks_with_resolve(options: argparse.Namespace) -> None:
    """Refuse `--blocks` together with `--resolve`, since both determine the number of blocks.

    Raises:
        UsageError: Both are given.

    """
    if options.resolve and options.blocks:
        raise UsageError("--resolve", "chooses the number of blocks that --blocks names", "leave one of them out")


RESUME_OPTIONS = ("argv", "verb", "resume", "target", "context", "plan", "json", "markdown")
"""The options that may accompany `--resume`: they say where and how to measure, not what."""


def given_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, with their values."""
    return {
        name: value for name, value in vars(options).items() if value is not None and value is not False and value != []
    }


def new_run_options(options: argparse.Namespace) -> set[str]:
    """Return the given options that define a new run; a resumed run has them already."""
    return given_options(options).keys() - RESUME_OPTIONS


def command_for_record(options: argparse.Namespace, names: str = "") -> tuple[str, ...]:
    """Return the command line for the record, in one form however it was typed.

    The order is: options with a value, flags, positional arguments. The cluster's context is left out, since other
    machines have other names for it.

    Args:
        options: The parsed options.
        names: The option with the positional arguments; empty for none.

    """
    values_of = {name: value if isinstance(value, list) else [value] for name, value in given_options(options).items()}
    positional = values_of.pop(names, [])
    by_option = {
        name.replace("_", "-"): values_of[name] for name in values_of if name not in ("argv", "verb", "context")
    }
    valued = [f"--{name}={value}" for name, values in by_option.items() for value in values if value is not True]
    flags = [f"--{name}" for name, values in by_option.items() if values == [True]]
    return ("lab", options.argv[0], *valued, *flags, *(["--", *positional] if positional else []))


# -- answers -------------------------------------------------------------------------------------------------


class _Piped(Console):
    """A console that raises BrokenPipeError when its reader has gone, where rich would end the lab."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def answer() -> Iterator[Console]:
    """Yield the console on which a verb prints its answer to stdout; calls of `print` belong in the block, too.

    When the reader has gone (`| head`), the rest of the answer is not printed, and the verb continues after the block.
    """
    with suppress(BrokenPipeError):
        yield _Piped(soft_wrap=False)


def print_answer(
    options: argparse.Namespace,
    page: Callable[[], Sequence[Part]],
    as_json: Callable[[], str],
    footer: Iterable[str] = (),
) -> None:
    """Print an answer in the form that `--json` or `--markdown` requests, or else as text for people.

    Args:
        options: The parsed options.
        page: Returns the answer for people and for Markdown.
        as_json: Returns the answer as JSON.
        footer: Lines that follow the text for people.

    """
    from lab.report.markdown import render_markdown
    from lab.report.terminal import print_parts

    with answer() as out:
        if options.json:
            print(as_json())
        elif getattr(options, "markdown", False):
            print(render_markdown(page()), end="")
        else:
            print_parts(out, page())
            for line in footer:
                out.print(f"[dim]{escape(line)}[/]", highlight=False, soft_wrap=True)
