"""Ways to get a cluster, by one table, and the files that describe the clusters.

`kind` and `remote` import what they need when they are called, so that `--help` is quick. What a cloud sells is made and removed by a bash
script around the cloud's own command line: `doks` around doctl, `eks-a1` around eksctl.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Protocol

from rich.console import Console

from lab.base.quantities import number


class Provider(Protocol):
    """`up` is idempotent, `down` fine where there is nothing. Both talk on stderr and raise LabError."""

    ABOUT: str
    """A line for --help."""

    def up_arguments(self, verb: argparse.ArgumentParser) -> None: ...
    def down_arguments(self, verb: argparse.ArgumentParser) -> None: ...
    def up(self, options: argparse.Namespace, talk: Console) -> None: ...
    def down(self, options: argparse.Namespace, talk: Console) -> None: ...


class Kind:
    ABOUT: str = "a cluster of containers on this machine (Docker and kind), from lab/targets/provision/kind.yaml"

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        about = "nodes beside the control plane's: the first for the generator alone, from two on one for each role (default: 0)"
        verb.add_argument("--workers", type=number("--workers", 0, 8), default=0, help=about)

    def down_arguments(self, verb: argparse.ArgumentParser) -> None: ...

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        from lab.targets.cluster import kind

        kind.up(options.workers, talk)

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        from lab.targets.cluster import kind

        kind.down(talk)


class Remote:
    ABOUT: str = "a cluster of yours, by the name of its context in your kubeconfig; never the current one"

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        verb.add_argument("--context", metavar="NAME", help="of your kubeconfig (KUBECONFIG, or ~/.kube/config)")

    down_arguments = up_arguments

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        from lab.targets.provision import remote

        remote.up(options.context, talk)

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        from lab.targets.provision import remote

        remote.down(options.context, talk)


class Script:
    """A provider whose `up` and `down` replace this process by the script `name` beside this file."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.ABOUT = name, about

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        about = "run the cloud's command without asking first (for scripts)"
        verb.add_argument("--yes", action="store_true", help=about)

    down_arguments = up_arguments

    def up(self, options: argparse.Namespace, talk: Console) -> NoReturn:
        self._become("up", options)

    def down(self, options: argparse.Namespace, talk: Console) -> NoReturn:
        self._become("down", options)

    def _become(self, verb: str, options: argparse.Namespace) -> NoReturn:
        path = Path(__file__).with_name(self.name)
        os.execv(path, [str(path), verb, *(["--yes"] if options.yes else [])])


PROVIDERS: Mapping[str, Provider] = {
    "doks": Script("doks", "the published DigitalOcean environment, by doctl (costs money; asks first)"),
    "eks-a1": Script("eks-a1", "the published AWS environment with A1 machines, by eksctl (costs money; asks first)"),
    "kind": Kind(),
    "remote": Remote(),
}
"""Each way by the name that the command line has for it."""
