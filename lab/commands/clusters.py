"""`up`, `down`: a cluster to measure on, made or prepared, and removed again. `lab/targets/provision` has the ways to get one."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

from lab.commands import Adder

if TYPE_CHECKING:
    from lab.targets.provision import Provider


def add_up(adder: Adder) -> None:
    verb = adder(_up, "get a cluster ready to measure on")
    _add_clusters(verb, lambda provider, cluster: provider.up_arguments(cluster))


def add_down(adder: Adder) -> None:
    verb = adder(_down, "remove it, with everything that the lab made for it")
    _add_clusters(verb, lambda provider, cluster: provider.down_arguments(cluster))


def _add_clusters(
    verb: argparse.ArgumentParser, add_arguments: Callable[[Provider, argparse.ArgumentParser], None]
) -> None:
    """Add each way to get a cluster as a word after the verb, with its own arguments."""
    from lab.targets.provision import PROVIDERS

    clusters = verb.add_subparsers(required=True, metavar="CLUSTER", title="clusters")
    for name, provider in PROVIDERS.items():
        cluster = clusters.add_parser(name, help=provider.ABOUT, description=provider.ABOUT)
        add_arguments(provider, cluster)
        cluster.set_defaults(provider=provider)


def _up(options: argparse.Namespace, talk: Console) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was begun is undone, as with Ctrl-C
    options.provider.up(options, talk)
    return 0


def _down(options: argparse.Namespace, talk: Console) -> int:
    options.provider.down(options, talk)
    return 0
