"""The verbs of the command line, a file each (or a few that belong together): what they take and what they print.

`verbs` has the table of them. These files and `lab/__main__.py` are the only ones that parse arguments and print; only `__main__` exits.
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
from lab.base.quantities import number, share

if TYPE_CHECKING:
    from lab.experiments.bench.request import Resolve
    from lab.report.grid import Part

Run = Callable[[argparse.Namespace, Console], int]
"""(options, where to talk: stderr) → exit status. Answers go to stdout."""
Takes = Mapping[str, Mapping[str, Any]]
"""Argument → argparse's own words for it."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb, or one of the words that may follow one.

    Attributes:
        about: What it is for.
        run: What it does; None: one of its words has to follow.
        takes: Its own arguments.
        shared: Those of OPTIONS that it takes.
        words: Word → what that is.
        metavar: What its words are called.
        more: What argparse's own parser of it is made with.
        add: Adds further arguments.

    """

    about: str
    run: Run | None
    takes: Takes = field(default_factory=dict[str, Mapping[str, Any]])
    shared: Sequence[str] = ()
    words: Mapping[str, Verb] = field(default_factory=dict[str, "Verb"])
    metavar: str = ""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    add: Callable[[argparse.ArgumentParser], None] | None = None


class RanInsideError(Exception):
    """The same command has run in its target's namespaces, and ended with `status`: there is nothing more to do here."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


# -- arguments that several verbs take -----------------------------------------------------------------------

BLOCKS_MOST = 1000
K6_OUT = ("summary", "csv", "json")
"""`lab.generators.k6.Out`, said again because naming it would load polars for `--help`."""


def variant_name(text: str) -> str:
    """The type of an argument that names a variant, by any of its names: the present one."""
    from lab.model.variants.naming import present_name

    return present_name(text)


def arm_name(text: str) -> str:
    """The same of an arm of a run."""
    from lab.model.variants.naming import present_arm

    return present_arm(text)


def fraction(place: str, text: str) -> float:
    """`5%` or `0.05` → 0.05, more than 0 and less than 1. UsageError."""
    value = share(text)
    if value is None:
        raise UsageError(place, f"expected a share, got '{text}'", "as 5% or 0.05")
    if not 0 < value < 1:
        meant = "%" not in text and 1 <= value < 100
        near = f"did you mean {text.strip()}%?" if meant else "more than 0 and less than 100%, as 5% or 0.05"
        raise UsageError(place, f"{text} is no share of that kind", near)
    return value


def word_of(place: str, what: str, known: Collection[str]) -> Callable[[str], str]:
    """A converter of an option's text that takes these words alone. UsageError of `place`."""

    def convert(text: str) -> str:
        refuse_unknown(text, known, place, f"unknown {what} '{text}'")
        return text

    return convert


def _resolve(text: str) -> Resolve:
    from lab.experiments.bench.request import parse_resolve

    return parse_resolve(text)


VARIANT: Mapping[str, Any] = {
    "type": variant_name,
    "metavar": "VARIANT",
    "help": "an overlay, a component by itself, or BASELINE+KNOB+KNOB; names of before will do",
}
STORED: Mapping[str, Any] = {
    "metavar": "RUN",
    "help": "by its name in data/runs, or its folder (data/reference/…: the committed ones)",
}
"""A run that is there."""
OPTIONS: Takes = {
    "--target": {"help": "where it runs, of those that `just doctor` tries (default: local)"},
    "--context": {"metavar": "NAME", "help": "of --target remote: the kubeconfig's context, never the current one"},
    "--blocks": {"type": number("--blocks", 1, BLOCKS_MOST), "help": "how often each is measured"},
    "--seed": {"type": number("--seed", 0, 2**31 - 1), "help": "seed for the randomized order (default: random)"},
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
        "type": _resolve,
        "metavar": "5%[,METRIC]",
        "help": "as many blocks as find such an effect in the variants' primary metric (or METRIC) with 90 %% probability,"
        " by the noise that an earlier run found here (see aa)",
    },
    "--worth": {
        "type": partial(fraction, "--worth"),
        "metavar": "2%",
        "help": "the effect from which on it is worth knowing (default: 2%%): where the interval lies within it, it is the same",
    },
}
"""What several verbs take, each under its name, and argparse's words for it."""
TARGETED = ("--target", "--context")
MEASURING = (*TARGETED, "--blocks", "--seed", "--plan", "--json")
"""What every verb takes that measures a run."""


def refuse_blocks_beside_resolve(options: argparse.Namespace) -> None:
    """UsageError: one of the two says how many."""
    if options.resolve and options.blocks:
        raise UsageError("--resolve", "chooses the number of blocks that --blocks names", "leave one of them out")


GO_ON = ("argv", "verb", "resume", "target", "context", "plan", "json", "markdown")
"""What may stand beside `--resume`: where and how, not what is measured."""


def given(options: argparse.Namespace) -> dict[str, Any]:
    """Option → its value, of those that were given."""
    return {
        name: value for name, value in vars(options).items() if value is not None and value is not False and value != []
    }


def of_its_own(options: argparse.Namespace) -> set[str]:
    """The options given that make another run: one that goes on has its own."""
    return given(options).keys() - GO_ON


def recorded(options: argparse.Namespace, names: str = "") -> tuple[str, ...]:
    """The command line in one form however it was typed, for the record: options with a value, flags, then what is in `names`.

    The cluster's context is no part of it: another machine has another name for it.
    """
    words = {name: value if isinstance(value, list) else [value] for name, value in given(options).items()}
    named = words.pop(names, [])
    told = {name.replace("_", "-"): words[name] for name in words if name not in ("argv", "verb", "context")}
    valued = [f"--{name}={each}" for name, values in told.items() for each in values if each is not True]
    flags = [f"--{name}" for name, values in told.items() if values == [True]]
    return ("lab", options.argv[0], *valued, *flags, *(["--", *named] if named else []))


# -- answers -------------------------------------------------------------------------------------------------


class _Piped(Console):
    """Leaves a reader that has gone to us: rich would end the lab there."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def answer() -> Iterator[Console]:
    """Where to print the answer, `print` included. What nobody reads any more (`| head`) is not printed, and the verb goes on."""
    with suppress(BrokenPipeError):
        yield _Piped(soft_wrap=False)


def print_answer(
    options: argparse.Namespace,
    page: Callable[[], Sequence[Part]],
    as_json: Callable[[], str],
    below: Iterable[str] = (),
) -> None:
    """As `--json` or `--markdown` say, else for people, who get the lines `below`, too."""
    from lab.report.markdown import markdown
    from lab.report.terminal import show

    with answer() as out:
        if options.json:
            print(as_json())
        elif getattr(options, "markdown", False):
            print(markdown(page()), end="")
        else:
            show(out, page())
            for line in below:
                out.print(f"[dim]{escape(line)}[/]", highlight=False, soft_wrap=True)
