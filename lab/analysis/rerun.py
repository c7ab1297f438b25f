"""The commands that measure the same as a stored run once more, or resume it.

    {command: [lab, aa, --sweep=mine/tiny.toml, …], sweep: tiny, target: kind}  →   --sweep mine/tiny.toml --target kind

They do not choose the number of blocks. No record has the context of a cluster, so it is left open: `--context NAME`.
"""

from __future__ import annotations

import shlex

from lab.model.names import DEFAULT_TARGET
from lab.model.run import AtKnee, RunRecord

REMOTE = "remote"
NO_LOAD = ("--", "--json", "--plan")
"""The arguments of a verb that select its output, or that end the options."""


def measure_command(record: RunRecord, arms: str) -> str:
    """Return `just bench ARMS …`, or for a search `just knee ARMS …` with the conditions and load that it was given.

    Variants that exist only in the run's own manifests (an ablation's) are measured by the run's own command.
    """
    if record.manifests is not None:
        arguments = (
            argument
            for argument in record.command[1:]
            if argument not in NO_LOAD and not argument.startswith("--blocks=")
        )
        return f"just {shlex.join(arguments)}{_format_context(record.target)}"
    if record.knee is None:
        return f"just bench {arms}{load(record)}"
    options = (argument for argument in record.command if argument.startswith("--") and argument not in NO_LOAD)
    quoted = (f" {shlex.quote(option)}" for option in options if not option.startswith("--target="))
    return f"just knee {arms}{''.join(quoted)}{place(record.target)}"


def bench(arms: str, sweep: str | None, target: str | None) -> str:
    """Return `just bench ARMS --sweep S --target T`."""
    return f"just bench {arms} --sweep {sweep}{place(target)}"


def load(record: RunRecord) -> str:
    """Return ` --sweep S --sustained --knee R --k6-out O --target T`, each part where it is not the default.

    A sweep that was given as a file is named as it was then.
    """
    from lab.model.sweeps import DEFAULT_SWEEP

    name = next(
        (argument.partition("=")[2] for argument in record.command if argument.startswith("--sweep=")), record.sweep
    )
    sweep = "" if name == DEFAULT_SWEEP else f" --sweep {shlex.quote(name)}"
    output = next(filter(None, map(record.k6_out, record.generators)), None)
    sustained = " --sustained" if any(point.sustained for point in record.points) else ""
    return sweep + sustained + placed(record.at_knee, output) + place(record.target)


def placed(knee: AtKnee | None, output: str | None) -> str:
    """Return ` --knee R --k6-out O`, each part where there is one.

    R is the rate of the knee: the search that found it may be gone, or have another result by now. O is what k6 writes
    of every request: it costs CPU, so runs with and without it have different noise.
    """
    at_knee = "" if knee is None else f" --knee {knee.rate_rps!r}".removesuffix(".0")
    return at_knee + (f" --k6-out {output}" if output else "")


def place(target: str | None) -> str:
    """Return ` --target T`; empty for the default target, and where it is not known.

    A remote cluster needs its context named each time.
    """
    return ("" if target in (None, DEFAULT_TARGET) else f" --target {target}") + _format_context(target)


def resume(record: RunRecord) -> str:
    """Return the command that resumes a run that was not measured completely."""
    return f"just {'bench' if record.knee is None else 'knee'}{resumed(record.id, record.target)}"


def resumed(run: str, target: str) -> str:
    """Return ` --resume RUN` with what the run's target needs."""
    return f" --resume {run}{_format_context(target)}"


def _format_context(target: str | None) -> str:
    return " --context NAME" if target == REMOTE else ""
