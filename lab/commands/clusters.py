"""`up`, `down`: a cluster to measure on, made or prepared, and removed again. `lab/targets/provision` has the ways to get one."""

from __future__ import annotations

import argparse
import signal

from rich.console import Console

from lab.commands import Adder


def add(adder: Adder) -> None:
    from lab.targets.provision import PROVIDERS

    up = adder("up", _up, "get a cluster ready to measure on")
    down = adder("down", _down, "remove it, with everything that the lab made for it")
    kinds_up = up.add_subparsers(required=True, metavar="CLUSTER", title="clusters")
    kinds_down = down.add_subparsers(required=True, metavar="CLUSTER", title="clusters")
    for name, provider in PROVIDERS.items():
        one_up = kinds_up.add_parser(name, help=provider.ABOUT, description=provider.ABOUT)
        one_down = kinds_down.add_parser(name, help=provider.ABOUT, description=provider.ABOUT)
        provider.up_arguments(one_up)
        provider.down_arguments(one_down)
        one_up.set_defaults(provider=provider)
        one_down.set_defaults(provider=provider)


def _up(options: argparse.Namespace, talk: Console) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was begun is undone, as with Ctrl-C
    options.provider.up(options, talk)
    return 0


def _down(options: argparse.Namespace, talk: Console) -> int:
    options.provider.down(options, talk)
    return 0
