"""The commands that measure the same as a stored run once more, or resume it.

    {command: [lab, aa, --sweep=mine/tiny.toml, …], sweep: tiny, target: kind}  →   --sweep mine/tiny.toml --target kind

The commands do not choose the number of blocks. No record has the context of a remote cluster, so the commands leave it
open: `--context NAME`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from lab.model.names import DEFAULT_TARGET
from lab.model.run import AtKnee, RunRecord

REMOTE = "remote"
TRAFFIC = "--traffic"
NO_LOAD = ("--", "--json", "--plan")
"""The arguments of a verb that select its output, or that end the options."""


def measure_command(record: RunRecord, arms: str) -> str:
    """Return the command that measures arms with the load and target of a stored run: `just bench ARMS …`.

    For a run that searched the knee (highest rate within a latency bound), it is `just knee ARMS …` with the run's
    options. If the run's variants exist only in its own manifests, as those of an ablation (a study of single settings)
    do, it is the run's own command.

    Args:
        record: The record of the stored run.
        arms: The names of the arms (variants), separated by spaces.

    """
    if record.manifests is not None:
        arguments = (
            argument
            for argument in record.command[1:]
            if argument not in NO_LOAD and not argument.startswith("--blocks=")
        )
        return f"just {shlex.join(_without_log(record, arguments))}{_format_context(record.target)}"
    if record.knee is None:
        return f"just bench {arms}{load(record)}"
    options = (argument for argument in record.command if argument.startswith("--") and argument not in NO_LOAD)
    quoted = (
        f" {shlex.quote(option)}" for option in _without_log(record, options) if not option.startswith("--target=")
    )
    return f"just knee {arms}{''.join(quoted)}{place(record.target)}"


def _without_log(record: RunRecord, arguments: Iterable[str]) -> Iterator[str]:
    """Yield arguments of a run's command, with the run's id in place of the access log that its load was made from.

    `--traffic=access.log` becomes `--traffic=RUN`.
    """
    for argument in arguments:
        yield f"{TRAFFIC}={record.id}" if argument.startswith(f"{TRAFFIC}=") else argument


def bench(arms: str, sweep: str | None, target: str | None) -> str:
    """Return the command that measures arms under a sweep on a target: `just bench ARMS --sweep S --target T`.

    Args:
        arms: The names of the arms (variants), separated by spaces.
        sweep: The sweep (named list of loads).
        target: The target. The default target, or None, is left out of the command.

    """
    return f"just bench {arms} --sweep {sweep}{place(target)}"


def load(record: RunRecord) -> str:
    """Return the options that give a command the load and target of a stored run, with a leading space.

    They are ` --sweep S --sustained --knee R --k6-out O --target T`; each is left out if it is the default. A sweep
    that was given as a file is named by the same path.
    """
    from lab.model.sweeps import DEFAULT_SWEEP

    name = next(
        (argument.partition("=")[2] for argument in record.command if argument.startswith("--sweep=")), record.sweep
    )
    sweep = "" if name == DEFAULT_SWEEP else f" --sweep {shlex.quote(name)}"
    if traffic := [argument for argument in record.command if argument.startswith(TRAFFIC)]:
        sweep = f" {' '.join(_without_log(record, traffic))}"
    output = next(filter(None, map(record.k6_out, record.generators)), None)
    sustained = " --sustained" if any(point.sustained for point in record.points) else ""
    return sweep + sustained + placed(record.at_knee, output) + place(record.target)


def placed(knee: AtKnee | None, output: str | None) -> str:
    """Return the options ` --knee R --k6-out O` of a command, each only if it applies, with a leading space.

    Args:
        knee: The knee (highest rate within the latency bound) from which the run's rates were derived, or None. R is
            its rate. It is not the id of the search that found the knee, because that run may have been deleted.
        output: The format O in which k6 writes every request, or None. Writing costs CPU, so runs with and without it
            have different noise.

    """
    at_knee = "" if knee is None else f" --knee {knee.rate_rps!r}".removesuffix(".0")
    return at_knee + (f" --k6-out {output}" if output else "")


def place(target: str | None) -> str:
    """Return the option ` --target T` of a command; empty for the default target, and for None.

    For a remote cluster ` --context NAME` follows, because the user must name the context each time.
    """
    return ("" if target in (None, DEFAULT_TARGET) else f" --target {target}") + _format_context(target)


def resume(record: RunRecord) -> str:
    """Return the command that resumes a run that was not measured completely."""
    return f"just {'bench' if record.knee is None else 'knee'}{resumed(record.id, record.target)}"


def resumed(run: str, target: str) -> str:
    """Return the option ` --resume RUN` of a command, for a remote cluster followed by ` --context NAME`.

    Args:
        run: The id of the run to resume.
        target: The name of the run's target.

    """
    return f" --resume {run}{_format_context(target)}"


def _format_context(target: str | None) -> str:
    return " --context NAME" if target == REMOTE else ""
