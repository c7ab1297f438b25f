"""A run's record → the command that measures the same once more, or goes on with it.

    {command: [lab, aa, --sweep=mine/tiny.toml, …], sweep: tiny, target: kind}  →   --sweep mine/tiny.toml --target kind

Refuses to know how many blocks, and the context of a cluster, which no record has: `--context NAME`.
"""

from __future__ import annotations

import shlex

from lab.records import RunRecord
from lab.targets import DEFAULT

REMOTE = "remote"


def measure(record: RunRecord, arms: str) -> str:
    """`just bench ARMS …`; of a search `just knee ARMS …`, with the conditions and the load that it was asked for."""
    if record.knee is None:
        return f"just bench {arms}{load(record)}"
    valued = (word for word in record.command if word.startswith("--") and "=" in word)
    asked = (f" {shlex.quote(word)}" for word in valued if not word.startswith("--target="))
    return f"just knee {arms}{''.join(asked)}{place(record.target)}"


def load(record: RunRecord) -> str:
    """` --sweep S --target T`, each where it is not the default. A sweep that was a file is named as it was then."""
    from lab.bench import DEFAULT_SWEEP  # not above: it plans by lab.resolving, which asks here

    asked = next((word.partition("=")[2] for word in record.command if word.startswith("--sweep=")), record.sweep)
    return ("" if asked == DEFAULT_SWEEP else f" --sweep {shlex.quote(asked)}") + place(record.target)


def place(target: str) -> str:
    """` --target T`, empty for the default; a cluster of one's own needs its context named each time."""
    return ("" if target == DEFAULT else f" --target {target}") + _context(target)


def resume(record: RunRecord) -> str:
    """What goes on with a run that is not all measured."""
    verb = "bench" if record.knee is None else "knee"
    return f"just {verb} --resume {record.id}{_context(record.target)}"


def _context(target: str) -> str:
    return " --context NAME" if target == REMOTE else ""
