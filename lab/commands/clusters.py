"""The verbs `up` and `down` (clusters to measure on), and `with` (a command next to a running variant).

`lab/targets/provision` has the ways to get a cluster.
"""

from __future__ import annotations

import argparse
from functools import partial

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import TARGETED, VARIANT, Verb
from lab.commands.measuring import end_on_sigterm, enter_target
from lab.targets.provision import PROVIDERS, Provider


def _run_up(provider: Provider, options: argparse.Namespace, talk: Console) -> int:
    end_on_sigterm()  # SIGTERM then undoes what was begun, as Ctrl-C does
    provider.up(options, talk)
    return 0


def _run_down(provider: Provider, options: argparse.Namespace, talk: Console) -> int:
    provider.down(options, talk)
    return 0


def _run_with(options: argparse.Namespace, talk: Console) -> int:
    from lab.model.variants.variants import load_variant
    from lab.targets.common.process import run_with_variant

    if not options.command:
        remedy = "for example: just with ingress-nginx sh -c 'curl -i $LAB_URL/healthz'"
        raise UsageError("with", "no command given", remedy)
    variant = load_variant(options.variant)
    return run_with_variant(enter_target(options, options.target), variant, options.command)


UP = Verb(
    "get a cluster ready to measure on",
    None,
    words={
        name: Verb(provider.ABOUT, partial(_run_up, provider), add=provider.up_arguments)
        for name, provider in PROVIDERS.items()
    },
    metavar="CLUSTER",
)
DOWN = Verb(
    "remove it, with everything that the lab made for it",
    None,
    words={
        name: Verb(provider.ABOUT, partial(_run_down, provider), add=provider.down_arguments)
        for name, provider in PROVIDERS.items()
    },
    metavar="CLUSTER",
)
WITH = Verb(
    "bring a variant up and run a command in the client's place (LAB_URL, LAB_HOST)",
    _run_with,
    {
        "variant": VARIANT,
        "command": {"nargs": argparse.REMAINDER, "metavar": "CMD", "help": "e.g. sh -c 'wrk -c64 $LAB_URL/1kB.bin'"},
    },
    TARGETED,
)
