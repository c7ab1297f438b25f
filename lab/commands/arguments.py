"""Arguments that several verbs take, and their complaints."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.base.errors import UsageError, did_you_mean
from lab.base.quantities import number, share

if TYPE_CHECKING:
    from lab.experiments.bench.request import Resolve
    from lab.targets.base import Target

BLOCKS_MOST = 1000
K6_OUT = ("summary", "csv", "json")
"""`lab.generators.k6.Out`, said again because naming it would load polars for `--help`."""
TARGET = "where it runs, of those that `just doctor` tries (default: local)"


VARIANT = "an overlay, a component by itself, or BASELINE+KNOB+KNOB; names of before will do"


def variant_name(text: str) -> str:
    """The type of an argument that names a variant, by any of its names: the present one."""
    from lab.model.variants.naming import present_name

    return present_name(text)


def arm_name(text: str) -> str:
    """The same of an arm of a run."""
    from lab.model.variants.naming import present_arm

    return present_arm(text)


def add_target(verb: argparse.ArgumentParser) -> None:
    """`--target --context`: where it runs."""
    verb.add_argument("--target", help=TARGET)
    verb.add_argument(
        "--context", metavar="NAME", help="of --target remote: the kubeconfig's context, never the current one"
    )


def add_measuring(verb: argparse.ArgumentParser) -> None:
    """`--target --context --blocks --seed --plan --json`: what every verb takes that measures a run."""
    add_target(verb)
    verb.add_argument("--blocks", type=number("--blocks", 1, BLOCKS_MOST), help="how often each is measured")
    verb.add_argument("--seed", type=number("--seed", 0, 2**31 - 1), help="of the shuffled order (default: drawn)")
    verb.add_argument("--plan", action="store_true", help="print the plan and stop; with --json, as JSON")
    verb.add_argument("--json", action="store_true", help="print the result as JSON")


class _OneFile(argparse.Action):
    """A path that is given once: argparse would pass over the first of two in silence."""

    def __call__(
        self, parser: argparse.ArgumentParser, options: argparse.Namespace, path: Any, option: str | None = None
    ) -> None:
        place, before = str(option), getattr(options, self.dest)
        if before is not None:
            raise UsageError(place, f"is given twice: {before} and {path}", "give one: two files are two calls")
        setattr(options, self.dest, path)


def add_configmap(verb: argparse.ArgumentParser, about: str) -> None:
    """`--configmap`: a user's own."""
    verb.add_argument("--configmap", metavar="FILE", action=_OneFile, help=about)


def add_k6_out(verb: argparse.ArgumentParser) -> None:
    """`--k6-out`, of verbs whose loads k6 may make."""
    verb.add_argument(
        "--k6-out",
        choices=K6_OUT,
        help="keep k6's own output beside each sample, for `just export RUN --what k6`: its summary, or also a row for every"
        " number as CSV or JSON lines, which costs k6 CPU that a closed loop lacks; never compare such a run with one without",
    )


def add_worth(verb: argparse.ArgumentParser) -> None:
    """`--worth`: of verbs that judge what they measure."""
    verb.add_argument(
        "--worth",
        type=partial(fraction, "--worth"),
        metavar="2%",
        help="the effect from which on it is worth knowing (default: 2%%): where the interval lies within it, it is the same",
    )


def add_sustained(verb: argparse.ArgumentParser) -> None:
    """`--sustained`: of verbs that measure a sweep."""
    verb.add_argument(
        "--sustained",
        action="store_true",
        help="make every sample 180 s long, without a warm-up and without pairs, to show what comes after a proxy's local ports have run"
        " out; effects are shown in each third of it; loads that end by a number of requests, or are disturbed, stay as they are",
    )


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


def add_resolve(verb: argparse.ArgumentParser) -> None:
    """`--resolve`: instead of `--blocks`."""
    verb.add_argument(
        "--resolve",
        type=_resolve,
        metavar="5%[,METRIC]",
        help="as many blocks as find such an effect in the variants' primary metric (or METRIC) with 90 %% probability,"
        " by the noise that an earlier run found here (see aa)",
    )


def refuse_blocks_beside_resolve(options: argparse.Namespace) -> None:
    """UsageError: one of the two says how many."""
    if options.resolve and options.blocks:
        raise UsageError("--resolve", "chooses the number of blocks that --blocks names", "leave one of them out")


def _resolve(text: str) -> Resolve:
    from lab.experiments.bench.request import parse_resolve

    return parse_resolve(text)


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


def target_of(options: argparse.Namespace) -> str | None:
    """`--target`, or that of the run to `--resume`. UsageError when both are named and differ."""
    from lab.records.store import RunStore

    if not options.resume:
        return options.target
    record = RunStore.open(options.resume).record
    if options.target not in (None, record.target):
        raise UsageError("--target", f"run {record.id} is of target '{record.target}'", "leave --target out")
    return record.target


def known_target(name: str | None, context: str | None) -> Target:
    """The target of that name at that context, the default one for None."""
    from lab.model.names import DEFAULT_TARGET
    from lab.targets import TARGETS, chosen

    if name is not None and name not in TARGETS:
        raise UsageError("--target", f"unknown target '{name}'", did_you_mean(name, TARGETS))
    return chosen(name or DEFAULT_TARGET, context)


def inside(options: argparse.Namespace, name: str | None, here: Callable[[Target], int]) -> int:
    """Go on where the target of that name measures: in its own namespaces, if it has some. The exit status."""
    target = known_target(name, options.context)
    entered = target.enter(options.argv)
    return here(target) if entered is None else entered
