"""Arguments that several verbs take, and their complaints."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.base.errors import UsageError
from lab.base.quantities import number, share

if TYPE_CHECKING:
    from lab.experiments.bench.request import Resolve

BLOCKS_MOST = 1000
K6_OUT = ("summary", "csv", "json")
"""`lab.generators.k6.Out`, said again because naming it would load polars for `--help`."""
VARIANT = "an overlay, a component by itself, or BASELINE+KNOB+KNOB; names of before will do"


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


def _resolve(text: str) -> Resolve:
    from lab.experiments.bench.request import parse_resolve

    return parse_resolve(text)


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--target": {"help": "where it runs, of those that `just doctor` tries (default: local)"},
    "--context": {
        "metavar": "NAME",
        "help": "of --target remote: the kubeconfig's context, never the current one",
    },
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


def add_options(verb: argparse.ArgumentParser, *names: str) -> None:
    """Let a verb take these of OPTIONS."""
    for name in names:
        verb.add_argument(name, **OPTIONS[name])


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
