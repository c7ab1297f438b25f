"""The ways to get a cluster, in one table, and the files that describe the clusters.

`kind` and `remote` import what they need when they are called, so that `--help` is quick. What a cloud sells is
made and removed by a bash script around the cloud's own command line: `doks` around doctl, `eks-a1` around eksctl.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Protocol

from rich.console import Console

from lab.base.quantities import whole_number_in


class Provider(Protocol):
    """A way to get a cluster and to remove it again, behind `just up NAME` and `just down NAME`.

    `up` may be called for a cluster that exists, and `down` when there is none. Both write progress to a console on
    stderr, and raise LabError when they fail.
    """

    ABOUT: str
    """The line for --help."""

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the options of `just up` to the parser."""
        ...

    def down_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the options of `just down` to the parser."""
        ...

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        """Make or prepare the cluster."""
        ...

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        """Remove what `up` made."""
        ...


class KindProvider:
    """The way to get a kind cluster on this machine."""

    ABOUT: str = "a cluster of containers on this machine, made by kind; needs Docker and about 6 GB"

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the options of `just up kind` to the parser."""
        help_text = (
            "number of worker nodes, 0 to 8: the load generator gets the first one, and with two or more each role has"
            " its own (default: 0, everything on one node)"
        )
        verb.add_argument("--workers", type=whole_number_in("--workers", 0, 8), default=0, metavar="N", help=help_text)

    def down_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add nothing, because `just down kind` has no options."""

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        """Make the kind cluster with the number of worker nodes in the options."""
        from lab.targets.cluster import kind

        kind.up(options.workers, talk)

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        """Remove the kind cluster."""
        from lab.targets.cluster import kind

        kind.down(talk)


class RemoteProvider:
    """The way to use an existing cluster."""

    ABOUT: str = "your own cluster, named by its kubeconfig context (the current context is never used)"

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the options of `just up remote` and `just down remote` to the parser."""
        verb.add_argument(
            "--context",
            metavar="NAME",
            help="kubeconfig context of your cluster, from KUBECONFIG or ~/.kube/config (required)",
        )

    down_arguments = up_arguments

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        """Prepare the existing cluster at the named context for the lab."""
        from lab.targets.provision import remote

        remote.up(options.context, talk)

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        """Remove what the lab put into the cluster at the named context; the cluster itself stays."""
        from lab.targets.provision import remote

        remote.down(options.context, talk)


class ScriptProvider:
    """A way to get a cluster from a cloud by a bash script in this folder.

    The methods `up` and `down` replace this process by the script, so they do not return.
    """

    def __init__(self, name: str, description: str) -> None:
        """Describe the script.

        Args:
            name: The file name of the script.
            description: The line for --help.

        """
        self.name, self.ABOUT = name, description

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the options of `just up` and `just down` to the parser."""
        help_text = "do not ask before the cloud's command runs, which costs money; for scripts"
        verb.add_argument("--yes", action="store_true", help=help_text)

    down_arguments = up_arguments

    def up(self, options: argparse.Namespace, talk: Console) -> NoReturn:
        """Replace this process by the script that makes the cluster."""
        self._become("up", options)

    def down(self, options: argparse.Namespace, talk: Console) -> NoReturn:
        """Replace this process by the script that removes the cluster."""
        self._become("down", options)

    def _become(self, verb: str, options: argparse.Namespace) -> NoReturn:
        path = Path(__file__).with_name(self.name)
        os.execv(path, [str(path), verb, *(["--yes"] if options.yes else [])])


PROVIDERS: Mapping[str, Provider] = {
    "doks": ScriptProvider("doks", "the published DigitalOcean environment, by doctl (costs money; asks first)"),
    "eks-a1": ScriptProvider(
        "eks-a1", "the published AWS environment with A1 machines, by eksctl (costs money; asks first)"
    ),
    "kind": KindProvider(),
    "remote": RemoteProvider(),
}
"""The ways to get a cluster, by their names on the command line."""
