"""The options `--traffic` and `--traffic-rate`: they load with the mix of requests of an access log, or of an earlier run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab.base.errors import UsageError, refuse_if
from lab.base.handing import STDIN, TRAFFIC_VARIABLE, hand_over, piped_command, read_once
from lab.commands import Options

if TYPE_CHECKING:
    from lab.model.sweeps import Sweep
    from lab.model.traffic import Traffic

TRAFFIC = "traffic"
"""The name of the sweep (list of loads) that is filled with the mix of requests of a log."""


@contextmanager
def hand_over_traffic(options: Options, own_sweep: str | None = None) -> Iterator[Sweep | None]:
    """Yield a sweep (list of loads) with the mix of requests that `--traffic` names; None without this option.

    The value of `--traffic` is the file of an access log, `-` for standard input, or a run whose mix of requests is used
    again. Inside the `with` block, the mix is passed to child processes, because they could not read standard input again.

    Args:
        options: The parsed options.
        own_sweep: The verb's default sweep. `--traffic` is refused if `--sweep` names another one.

    Raises:
        UsageError: The file is not an access log, the run has no mix of requests, or another option does not go with
            `--traffic`.

    """
    rate_rps, sweep = getattr(options, "traffic_rate", None), getattr(options, "sweep", None)
    if options.traffic is None:
        if rate_rps is not None:
            raise UsageError("--traffic-rate", "there is no log whose rate it scales", "name one: --traffic access.log")
        yield None
        return
    refuse_if(sweep not in (None, own_sweep), "--sweep", "--traffic makes a sweep of its own", "leave one of them out")
    from lab.experiments.traffic.shaping import make_sweep

    traffic = _read_traffic(options)
    made = make_sweep(traffic, rate_rps)
    with hand_over(traffic.model_dump_json().encode(), variable=TRAFFIC_VARIABLE):
        yield made


def _read_traffic(options: Options) -> Traffic:
    """Return the mix of requests for `--traffic`: made from an access log, taken from a run, or from the parent process.

    A child process of this command gets the mix that the parent process has made.
    """
    from lab.experiments.traffic.reading import read_log
    from lab.experiments.traffic.shaping import make_traffic
    from lab.model.traffic import Traffic
    from lab.records.store import RunStore, run_names

    name: str = options.traffic
    if TRAFFIC_VARIABLE in os.environ:
        return Traffic.model_validate_json(read_once(name, "", TRAFFIC_VARIABLE))
    if Path(name).is_dir() or (not Path(name).exists() and name in run_names()):
        record = RunStore.open(name).record
        if record.traffic is None:
            fault = f"the loads of run {record.id} request one page, and no mix of requests"
            raise UsageError("--traffic", fault, "name an access log, or a run that was measured with --traffic")
        return record.traffic
    others = [getattr(options, "configmap", None), *(getattr(options, "ingress", None) or [])]
    if name == STDIN and STDIN in others:
        raise UsageError("--traffic", "two files are the standard input", "give one of them by its name")
    content = read_once(name, piped_command(options.argv[0], "--traffic"), TRAFFIC_VARIABLE)
    return make_traffic(
        read_log("standard input" if name == STDIN else name, content), getattr(options, "seed", None) or 0
    )
