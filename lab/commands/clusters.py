"""`up`, `down`: a cluster to measure on, made or prepared, and removed again. `lab/targets/provision` has the ways to get one."""

from __future__ import annotations

import argparse
import signal

from rich.console import Console

from lab.commands import Adder


def add_up(adder: Adder) -> None:
    from lab.targets.provision import PROVIDERS

    clusters = adder(_up, "get a cluster ready to measure on").add_subparsers(
        required=True, metavar="CLUSTER", title="clusters"
    )
    for name, provider in PROVIDERS.items():
        cluster = clusters.add_parser(name, help=provider.ABOUT, description=provider.ABOUT)
        provider.up_arguments(cluster)
        cluster.set_defaults(provider=provider)


def add_down(adder: Adder) -> None:
    from lab.targets.provision import PROVIDERS

    clusters = adder(_down, "remove it, with everything that the lab made for it").add_subparsers(
        required=True, metavar="CLUSTER", title="clusters"
    )
    for name, provider in PROVIDERS.items():
        cluster = clusters.add_parser(name, help=provider.ABOUT, description=provider.ABOUT)
        provider.down_arguments(cluster)
        cluster.set_defaults(provider=provider)


def _up(options: argparse.Namespace, talk: Console) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was begun is undone, as with Ctrl-C
    options.provider.up(options, talk)
    return 0


def _down(options: argparse.Namespace, talk: Console) -> int:
    options.provider.down(options, talk)
    return 0
