"""The providers of clusters (`PROVIDERS`): ways to create or prepare a Kubernetes cluster for measurements, and remove it.

`kind` and `remote` import their modules only when they are called, so that `--help` is quick. A cluster in a cloud is
created and removed by a bash script that calls the cloud's command-line program: `doks` calls doctl, `eks-a1` eksctl.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from lab.base.quantities import whole_number_in

Arguments = Mapping[str, Mapping[str, Any]]
"""The options of a command, each with the keyword arguments of argparse's `add_argument`."""
Action = Callable[[argparse.Namespace, Console], None]
"""A function that gets the parsed options and a console on stderr, to which it writes its progress."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A way to get a cluster and to remove it again; it implements `just up NAME` and `just down NAME`.

    Calling `up` for a cluster that exists is no error, nor is calling `down` when there is none. Both raise LabError
    when they fail.

    Attributes:
        about: The line for --help.
        up: The function that creates the cluster, or prepares an existing one for measurements.
        down: The function that removes everything that `up` created.
        up_takes: The options of `just up NAME`.
        down_takes: The options of `just down NAME`.

    """

    about: str
    up: Action
    down: Action
    up_takes: Arguments
    down_takes: Arguments


def _up_kind(options: argparse.Namespace, talk: Console) -> None:
    """Create the kind cluster with as many worker nodes as the option --workers requests, or check the existing cluster."""
    from lab.targets.cluster import kind

    kind.up(options.workers, talk)


def _down_kind(_: argparse.Namespace, talk: Console) -> None:
    from lab.targets.cluster import kind

    kind.down(talk)


def _up_remote(options: argparse.Namespace, talk: Console) -> None:
    """Prepare the cluster at the kubeconfig context that --context names for measurements."""
    from lab.targets.provision import remote

    remote.up(options.context, talk)


def _down_remote(options: argparse.Namespace, talk: Console) -> None:
    """Remove what the lab has put into the cluster that --context names; the cluster itself stays."""
    from lab.targets.provision import remote

    remote.down(options.context, talk)


def _run_script(name: str, verb: str, options: argparse.Namespace, _: Console) -> NoReturn:
    """Replace this process (execv) by the bash script that creates or removes a cluster in a cloud.

    Args:
        name: The file name of the script.
        verb: `up` or `down`.
        options: The parsed options.

    """
    path = Path(__file__).with_name(name)
    os.execv(path, [str(path), verb, *(["--yes"] if options.yes else [])])


_CONTEXT: Arguments = {
    "--context": {
        "metavar": "NAME",
        "help": "kubeconfig context of your cluster, from KUBECONFIG or ~/.kube/config (required)",
    }
}
_WORKERS: Arguments = {
    "--workers": {
        "type": whole_number_in("--workers", 0, 8),
        "default": 0,
        "metavar": "N",
        "help": "number of worker nodes, 0 to 8: the load generator gets the first one, and with two or more each role "
        "has its own (default: 0, everything on one node)",
    }
}
_YES: Arguments = {
    "--yes": {
        "action": "store_true",
        "help": "do not ask before the cloud's command runs, which costs money; for scripts",
    }
}


def _make_cloud(name: str, about: str) -> Provider:
    """Return the provider whose clusters the script `name` of this folder creates and removes in a cloud.

    Args:
        name: The file name of the script.
        about: The environment and the cloud's tool, for --help.

    """
    up, down = (partial(_run_script, name, verb) for verb in ("up", "down"))
    return Provider(f"{about} (costs money; asks first)", up, down, up_takes=_YES, down_takes=_YES)


PROVIDERS: Mapping[str, Provider] = {
    "doks": _make_cloud("doks", "the published DigitalOcean environment, by doctl"),
    "eks-a1": _make_cloud("eks-a1", "the published AWS environment with A1 machines, by eksctl"),
    "kind": Provider(
        "a cluster of containers on this machine, made by kind; needs Docker and about 6 GB",
        _up_kind,
        _down_kind,
        up_takes=_WORKERS,
        down_takes={},
    ),
    "remote": Provider(
        "your own cluster, named by its kubeconfig context (the current context is never used)",
        _up_remote,
        _down_remote,
        up_takes=_CONTEXT,
        down_takes=_CONTEXT,
    ),
}
"""The ways to get a cluster, by their names on the command line."""
