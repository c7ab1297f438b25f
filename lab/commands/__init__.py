"""The verbs of the command line (`bench`, `table` and others): their arguments, and the printing of their answers.

A module has one verb or a few related ones; the module `verbs` has the table of all. Only these modules and
`lab/__main__.py` parse arguments and print. Only `__main__` ends the process.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from lab.base.errors import UsageError, refuse_if, refuse_unknown
from lab.base.quantities import parse_share, whole_number_in
from lab.model.names import OUTPUT_WIDTH

if TYPE_CHECKING:
    from lab.experiments.bench.request import Resolve
    from lab.report.grid import Part

Options = argparse.Namespace
"""The options and arguments of one command line, as attributes."""
RunVerb = Callable[[Options, Console], int | None]
"""The type of functions that run a verb: they take the options and the console of stderr, and return the exit status.

A verb that can only succeed or raise an error returns None, which stands for the status 0. Answers go to stdout.
"""
Arguments = Mapping[str, Mapping[str, Any]]
"""The arguments of a verb, each with the keyword arguments of argparse's `add_argument`.

An option may have several spellings with blanks between; the first is its name.
"""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the command line, such as `bench`, or a subcommand of a verb.

    Attributes:
        about: A short description, for the help.
        run: The function that runs the verb; None if a subcommand must follow.
        takes: The arguments that only this verb has.
        shared: The names of arguments in `OPTIONS`, which several verbs have.
        words: The subcommands by name.
        metavar: The placeholder for a subcommand in the help, such as `CLUSTER`.
        more: Further keyword arguments for the constructor of the verb's argparse parser.
        examples: Complete commands that the help shows at its end.

    """

    about: str
    run: RunVerb | None
    takes: Arguments = field(default_factory=dict[str, Mapping[str, Any]])
    shared: Sequence[str] = ()
    words: Mapping[str, Verb] = field(default_factory=dict[str, "Verb"])
    metavar: str = ""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    examples: Sequence[str] = ()


class RanInsideError(Exception):
    """The error that ends a verb because a child process has run the whole command in its place, inside Linux namespaces.

    `status` is the exit status of the child process, which has ended.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


# -- arguments that several verbs take -----------------------------------------------------------------------

BLOCKS_MOST = 1000
K6_OUT = ("summary", "csv", "json")
"""The values of `lab.generators.k6.Out`, repeated here because importing them would load polars for `--help`."""


def variant_name(text: str) -> str:
    """Return a variant's present name, given the name that a user typed, which may be a former one."""
    from lab.model.variants.naming import find_present_name

    return find_present_name(text)


def arm_name(text: str) -> str:
    """Return the present name of an arm (a variant in a run), given the name that a user typed, which may be a former one."""
    from lab.model.variants.naming import present_arm

    return present_arm(text)


def fraction(place: str, text: str) -> float:
    """Parse a share, written as `5%` or `0.05`, into a fraction: both give 0.05.

    Args:
        place: The option for the error message, such as `--margin`.
        text: The share as typed.

    Raises:
        UsageError: The text is no share, or the share does not lie between 0 and 1.

    """
    value = parse_share(text)
    if value is None:
        raise UsageError(place, f"expected a share, got '{text}'", "as 5% or 0.05")
    is_percent = "%" not in text and 1 <= value < 100
    near = f"did you mean {text.strip()}%?" if is_percent else "more than 0 and less than 100%, as 5% or 0.05"
    refuse_if(not 0 < value < 1, place, f"{text} is no share of that kind", near)
    return value


def one_of(place: str, noun: str, names: Collection[str]) -> Callable[[str], str]:
    """Return a function that checks an option's value: it returns an accepted name, and raises a UsageError otherwise.

    Args:
        place: The option for the error message, such as `--metric`.
        noun: What a name denotes, for the error message, such as `metric`.
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
    "help": "a variant (`just list variants`), a knob alone (`just list knobs`), or VARIANT+KNOB+KNOB",
}
RUN_ARGUMENT: Mapping[str, Any] = {
    "metavar": "RUN",
    "help": "a run: its name in data/runs, or its folder, such as data/reference/quick-keepalive",
}
"""The argument that names a stored run."""
RESUME: Mapping[str, Any] = {"metavar": "RUN", "help": "continue an interrupted run, named by its name or folder"}
SWEEPS_HELP = (
    "the loads to measure under: quick, page-sizes, tls, latency, many-connections, or another one of"
    " `just list sweeps`, or a TOML file of your own (default: {})"
)
"""The help of `--sweep`, with a place for the default."""
KNEE: Mapping[str, Any] = {
    "metavar": "RUN|RATE",
    "help": "for --sweep at-knee: the highest rate that the baseline serves well, as a number of requests per second,"
    " or the run of `just knee` that found it",
}
OPTIONS: Arguments = {
    "--target": {
        "metavar": "TARGET",
        "help": "where the proxies run: local (processes on this machine, the default), apiserver (the controllers with a"
        " real API server, without a cluster), kind (a cluster of containers on this machine), remote (your own cluster)",
    },
    "--context": {
        "metavar": "NAME",
        "help": "the kubeconfig context of your cluster; --target remote requires it, and the current context is never used",
    },
    "--blocks": {
        "type": whole_number_in("--blocks", 1, BLOCKS_MOST),
        "metavar": "N",
        "help": "number of blocks; a block measures every variant once under every load, so more blocks detect smaller"
        " differences and take longer (default: the sweep's own number, 10 for `just aa`)",
    },
    "--seed": {
        "type": whole_number_in("--seed", 0, 2**31 - 1),
        "metavar": "N",
        "help": "seed for the randomized order of the measurements, to repeat an earlier run's order (default: random)",
    },
    "--plan": {
        "action": "store_true",
        "help": "print what would be measured and how long that takes, and stop; with --json, as JSON",
    },
    "--json": {"action": "store_true", "help": "print the answer as JSON, for programs"},
    "--markdown": {"action": "store_true", "help": "print the answer as Markdown, for a pull request or a page"},
    "--k6-out": {
        "choices": K6_OUT,
        "help": "keep k6's own output with each sample, for `just export RUN --what k6`: only its summary, or every number"
        " as csv or json, which slows k6 down: do not compare such a run with one without",
    },
    "--sustained": {
        "action": "store_true",
        "help": "make every sample 180 s long, without warm-up and pairs, and show the effects in each third of it; finds"
        " proxies whose local ports run out. Loads of a fixed number of requests, or with a disruption, stay as they are",
    },
    "--resolve": {
        "type": _parse_resolve,
        "metavar": "5%[,METRIC]",
        "help": "measure long enough to detect a difference of 5 %% with 90 %% probability: the number of blocks is computed"
        " from the noise of an earlier run on this machine (`just aa`). The difference is one in METRIC, or else in each"
        " variant's primary metric",
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
        "help": "the equivalence margin: differences smaller than this count as none (default: 2%%)",
    },
}
"""The arguments that several verbs take, with the keyword arguments of argparse's `add_argument`."""
TARGETED = ("--target", "--context")
MEASURING = (*TARGETED, "--blocks", "--seed", "--plan", "--json")
"""The arguments of every verb that measures a run."""


def refuse_blocks_with_resolve(options: Options) -> None:
    """Raise an error if both `--blocks` and `--resolve` are given, since both determine the number of blocks.

    Raises:
        UsageError: Both are given.

    """
    fault = "chooses the number of blocks that --blocks names"
    refuse_if(options.resolve and options.blocks, "--resolve", fault, "leave one of them out")


def refuse_given(options: Options, names: Iterable[str], fault: str, remedy: str = "leave it out") -> None:
    """Raise an error about the first of some options that the user has given, such as one that another option excludes.

    Args:
        options: The parsed options.
        names: The names of the options to refuse.
        fault: The fault, in words that follow the option's name.
        remedy: The advice for the user.

    Raises:
        UsageError: One of the options is given. One with the value None, False, 0 or an empty list counts as not given.

    """
    for name in names:
        refuse_if(getattr(options, name), f"--{name.replace('_', '-')}", fault, remedy)


RESUME_OPTIONS = ("argv", "verb", "resume", "target", "context", "plan", "json", "markdown")
"""The names of options that may be given together with `--resume`, because they do not change what is measured."""


def given_options(options: Options) -> dict[str, Any]:
    """Return the options that the user has given, as name → value: those whose value is not None, False or an empty list.

    So an option with another default, such as `--sweep` in some verbs, always counts as given.
    """
    return {
        name: value for name, value in vars(options).items() if value is not None and value is not False and value != []
    }


def new_run_options(options: Options) -> set[str]:
    """Return the names of the given options that define a new run, and so cannot be combined with `--resume`."""
    return given_options(options).keys() - RESUME_OPTIONS


def command_for_record(options: Options, names: str = "") -> tuple[str, ...]:
    """Return the command line in a standard form, to store it in a run's record.

    The order is: options with a value, flags, positional arguments. `--context` (the name of the cluster) is left out,
    since other machines have other names for a cluster.

    Args:
        options: The parsed options.
        names: The name of the option that holds the positional arguments; empty = none.

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
    """A console that raises BrokenPipeError if nobody reads the output any more; rich itself would end the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def answer() -> Iterator[Console]:
    """Yield the console on which a verb prints its answer to stdout, as a context manager.

    If nobody reads stdout any more (`| head`), the rest of the `with` block is skipped, and the verb continues after
    the block. So calls of `print` must be inside the block, too.
    """
    with suppress(BrokenPipeError):
        yield _Piped(soft_wrap=False)


def print_page(template: str, **values: Any) -> None:
    """Print a page that is made from a template in `lab/commands/pages`.

    Lines longer than `OUTPUT_WIDTH` are wrapped at spaces and indented like a hanging paragraph. A line with a command
    `just bench …` is not wrapped, so that it can be copied.

    Args:
        template: The name of the template's file.
        values: The values for the template, by name.

    """
    from lab.systems.rendering import render_template

    with answer():
        for line in render_template(Path(__file__).parent / "pages" / template, **values).splitlines():
            head = re.match(r" *(?:\S+(?: \S+)* {2,})?", line)
            margin = " " * (head.end() if head and head.end() < OUTPUT_WIDTH / 3 else 4)
            wrapped = textwrap.fill(
                line, OUTPUT_WIDTH, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
            )
            print(line.rstrip() if "just bench " in line else wrapped)


def print_lines(console: Console, lines: Iterable[str | Text], most: int | None, command: str) -> None:
    """Print lines of text. If there are too many, print the first ones and the command that prints all of them.

    Args:
        console: The console.
        lines: The texts; each may have several lines.
        most: The largest number of lines to print; None = all.
        command: The command that prints all lines if `--all` is added.

    """
    pieces = [piece for line in lines for piece in Text.assemble(line).split()]
    if most is not None and len(pieces) > most:
        pieces[most - 1 :] = [Text(f"… {len(pieces) - most + 1} more lines: {command} --all")]
    for piece in pieces:
        console.print(piece, soft_wrap=True, highlight=False)


def print_answer(
    options: Options,
    page: Callable[[], Sequence[Part]],
    as_json: Callable[[], str],
    footer: Iterable[str] = (),
) -> None:
    """Print a verb's answer as JSON (`--json`), as Markdown (`--markdown`), or else as text for people.

    Args:
        options: The parsed options.
        page: A function that returns the answer for text and for Markdown.
        as_json: A function that returns the answer as JSON.
        footer: Lines to print after the text for people.

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
