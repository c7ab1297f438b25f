"""`up`, `down`: a cluster to measure on, made or prepared, and removed again; `with`: a command in the client's place, beside a variant that is up.

`lab/targets/provision` has the ways to get a cluster.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder, subcommands
from lab.commands.arguments import TARGETED, add_options, variant_name
from lab.commands.measuring import inside

if TYPE_CHECKING:
    from lab.targets.provision import Provider


def add_up(adder: Adder) -> None:
    verb = adder(None, "get a cluster ready to measure on")
    _add_clusters(verb, _up, lambda provider, cluster: provider.up_arguments(cluster))


def add_down(adder: Adder) -> None:
    verb = adder(None, "remove it, with everything that the lab made for it")
    _add_clusters(verb, _down, lambda provider, cluster: provider.down_arguments(cluster))


def _add_clusters(
    verb: argparse.ArgumentParser,
    function: Callable[[argparse.Namespace, Console], int],
    add_arguments: Callable[[Provider, argparse.ArgumentParser], None],
) -> None:
    """Add each way to get a cluster as a word after the verb, with its own arguments."""
    from lab.targets.provision import PROVIDERS

    add_cluster = subcommands(verb, "CLUSTER")
    for name, provider in PROVIDERS.items():
        cluster = add_cluster(name, function, provider.ABOUT)
        add_arguments(provider, cluster)
        cluster.set_defaults(provider=provider)


def _up(options: argparse.Namespace, talk: Console) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was begun is undone, as with Ctrl-C
    options.provider.up(options, talk)
    return 0


def _down(options: argparse.Namespace, talk: Console) -> int:
    options.provider.down(options, talk)
    return 0


def add_with(adder: Adder) -> None:
    verb = adder(_with, "bring a variant up and run a command in the client's place (LAB_URL, LAB_HOST)")
    add_options(verb, *TARGETED)
    verb.add_argument("variant", type=variant_name, metavar="VARIANT")
    verb.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD", help="e.g. sh -c 'wrk -c64 $LAB_URL/1kB.bin'")


def _with(options: argparse.Namespace, talk: Console) -> int:
    from lab.model.variants.variants import load_variant
    from lab.targets.common.process import run_beside

    if not options.command:
        raise UsageError(
            "with", "no command given", "for example: just with ingress-nginx sh -c 'curl -i $LAB_URL/healthz'"
        )
    variant = load_variant(options.variant)
    return inside(options, options.target, lambda target: run_beside(target, variant, options.command))
