"""Ways to get a cluster, by one table, and the files that describe the clusters.

`kind` and `remote` are modules with ABOUT (a line for --help) and the functions of `Provider`; they import what they need
when they are called, so that `--help` is quick. What a cloud sells is made and removed by a bash script around the cloud's
own command line: `doks` around doctl, `eks-a1` around eksctl.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Protocol

from rich.console import Console

from lab.targets.provision import kind, remote


class Provider(Protocol):
    """`up` is idempotent, `down` fine where there is nothing. Both talk on stderr and raise LabError."""

    ABOUT: str

    def up_arguments(self, verb: argparse.ArgumentParser) -> None: ...
    def down_arguments(self, verb: argparse.ArgumentParser) -> None: ...
    def up(self, options: argparse.Namespace, talk: Console) -> None: ...
    def down(self, options: argparse.Namespace, talk: Console) -> None: ...


class Script:
    """A provider whose `up` and `down` replace this process by the script `name` beside this file."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.ABOUT = name, about

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        verb.add_argument(
            "--yes", action="store_true", help="run the cloud's command without asking first (for scripts)"
        )

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
    "kind": kind,
    "remote": remote,
}
"""Each way by the name that the command line has for it."""
