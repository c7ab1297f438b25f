"""A run's record → the command that measures the same once more, or goes on with it.

    {command: [lab, aa, --sweep=mine/tiny.toml, …], sweep: tiny, target: kind}  →   --sweep mine/tiny.toml --target kind

Refuses to know how many blocks, and the context of a cluster, which no record has: `--context NAME`.
"""

from __future__ import annotations

import shlex

from lab.model.names import DEFAULT_TARGET
from lab.model.run import AtKnee, RunRecord

REMOTE = "remote"
NO_LOAD = ("--", "--json", "--plan")
"""Of a verb's arguments, what says how it is printed, and what ends the options."""


def measure(record: RunRecord, arms: str) -> str:
    """`just bench ARMS …`; of a search `just knee ARMS …`, with the conditions and the load that it was asked for.

    Variants that only the run's own manifests have (an ablation's) are asked for as they were.
    """
    if record.manifests is not None:
        words = (word for word in record.command[1:] if word not in NO_LOAD and not word.startswith("--blocks="))
        return f"just {shlex.join(words)}{_context(record.target)}"
    if record.knee is None:
        return f"just bench {arms}{load(record)}"
    load_words = (word for word in record.command if word.startswith("--") and word not in NO_LOAD)
    asked = (f" {shlex.quote(word)}" for word in load_words if not word.startswith("--target="))
    return f"just knee {arms}{''.join(asked)}{place(record.target)}"


def bench(arms: str, sweep: str | None, target: str | None) -> str:
    """`just bench ARMS --sweep S --target T`."""
    return f"just bench {arms} --sweep {sweep}{place(target)}"


def load(record: RunRecord) -> str:
    """` --sweep S --sustained --knee R --k6-out O --target T`, each where it is not the default. A sweep that was a file is named as it was then."""
    from lab.model.sweeps import DEFAULT_SWEEP

    asked = next((word.partition("=")[2] for word in record.command if word.startswith("--sweep=")), record.sweep)
    sweep = "" if asked == DEFAULT_SWEEP else f" --sweep {shlex.quote(asked)}"
    kept = next(filter(None, map(record.k6_out, record.generators)), None)
    sustained = " --sustained" if any(point.sustained for point in record.points) else ""
    return sweep + sustained + placed(record.at_knee, kept) + place(record.target)


def placed(at: AtKnee | None, kept: str | None) -> str:
    """` --knee R --k6-out O`, each where there is one.

    R is the rate of the knee: who found it may be gone, or know better by now. What k6 keeps of its own costs CPU to write, so that noise
    with and without differ.
    """
    at_knee = "" if at is None else f" --knee {at.rate_rps!r}".removesuffix(".0")
    return at_knee + (f" --k6-out {kept}" if kept else "")


def place(target: str | None) -> str:
    """` --target T`, empty for the default and where it is not known; a cluster of one's own needs its context named each time."""
    return ("" if target in (None, DEFAULT_TARGET) else f" --target {target}") + _context(target)


def resume(record: RunRecord) -> str:
    """What goes on with a run that is not all measured."""
    return f"just {'bench' if record.knee is None else 'knee'}{resumed(record.id, record.target)}"


def resumed(run: str, target: str) -> str:
    """` --resume RUN` of that target."""
    return f" --resume {run}{_context(target)}"


def _context(target: str | None) -> str:
    return " --context NAME" if target == REMOTE else ""
