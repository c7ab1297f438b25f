"""The providers of clusters (`PROVIDERS`): ways to create or prepare a Kubernetes cluster for measurements, and remove it.

`kind` and `remote` import their modules only when they are called, so that `--help` is quick. A cluster in a cloud is
created and removed by a bash script that calls the cloud's command-line program: `doks` calls doctl, `eks-a1` eksctl.
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
    """A way to get a cluster and to remove it again; it implements `just up NAME` and `just down NAME`.

    Calling `up` for a cluster that exists is no error, nor is calling `down` when there is none. Both write their
    progress to a console on stderr, and raise LabError when they fail.
    """

    ABOUT: str
    """The line for --help."""

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the options of `just up NAME` to the parser of this verb."""
        ...

    def down_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the options of `just down NAME` to the parser of this verb."""
        ...

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        """Create the cluster, or prepare an existing one for measurements."""
        ...

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        """Remove everything that `up` created."""
        ...


class KindProvider:
    """The provider of a kind cluster (Kubernetes in containers) on this machine."""

    ABOUT: str = "a cluster of containers on this machine, made by kind; needs Docker and about 6 GB"

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the option of `just up kind`, --workers, to the parser."""
        help_text = (
            "number of worker nodes, 0 to 8: the load generator gets the first one, and with two or more each role has"
            " its own (default: 0, everything on one node)"
        )
        verb.add_argument("--workers", type=whole_number_in("--workers", 0, 8), default=0, metavar="N", help=help_text)

    def down_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add nothing, because `just down kind` has no options."""

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        """Create the kind cluster with as many worker nodes as the option --workers requests, or check the existing cluster."""
        from lab.targets.cluster import kind

        kind.up(options.workers, talk)

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        """Remove the kind cluster."""
        from lab.targets.cluster import kind

        kind.down(talk)


class RemoteProvider:
    """The provider that prepares an existing cluster of the user for measurements."""

    ABOUT: str = "your own cluster, named by its kubeconfig context (the current context is never used)"

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the option --context, which `just up remote` and `just down remote` share, to the parser."""
        verb.add_argument(
            "--context",
            metavar="NAME",
            help="kubeconfig context of your cluster, from KUBECONFIG or ~/.kube/config (required)",
        )

    down_arguments = up_arguments

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        """Prepare the cluster at the kubeconfig context that --context names for measurements."""
        from lab.targets.provision import remote

        remote.up(options.context, talk)

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        """Remove what the lab has put into the cluster that --context names; the cluster itself stays."""
        from lab.targets.provision import remote

        remote.down(options.context, talk)


class ScriptProvider:
    """The provider of a cluster in a cloud, which a bash script in this folder creates and removes.

    The methods `up` and `down` replace this process by the script (execv), so they do not return.
    """

    def __init__(self, name: str, description: str) -> None:
        """Store the script's name and description.

        Args:
            name: The file name of the script.
            description: The line for --help.

        """
        self.name, self.ABOUT = name, description

    def up_arguments(self, verb: argparse.ArgumentParser) -> None:
        """Add the option --yes, which `just up NAME` and `just down NAME` share, to the parser."""
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
