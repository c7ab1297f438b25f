"""The verbs `up` and `down` (make or remove a cluster), and `with` (run a command while a variant is up).

`lab/targets/provision` has a module for each kind of cluster.
"""

from __future__ import annotations

import argparse
from functools import partial

from rich.console import Console

from lab.base.errors import refuse_if
from lab.commands import TARGETED, VARIANT, Options, Verb
from lab.commands.measuring import end_on_sigterm, enter_target
from lab.targets.provision import PROVIDERS, Provider

_CONTEXT = {"remote": " --context my-cluster"}
"""The option that the example of a cluster needs, by the cluster's name."""


def _run_up(provider: Provider, options: Options, talk: Console) -> None:
    end_on_sigterm()  # SIGTERM then undoes what was begun, as Ctrl-C does
    provider.up(options, talk)


def _run_with(options: Options, talk: Console) -> int:
    from lab.model.variants.variants import load_variant
    from lab.targets.common.process import run_with_variant

    remedy = "for example: just with ingress-nginx sh -c 'curl -i $LAB_URL/healthz'"
    refuse_if(not options.command, "with", "no command given", remedy)
    variant = load_variant(options.variant)
    return run_with_variant(enter_target(options, options.target), variant, options.command)


UP = Verb(
    "make a cluster for measuring, or prepare yours (kind, remote, doks, eks-a1)",
    None,
    words={
        name: Verb(
            provider.about,
            partial(_run_up, provider),
            provider.up_takes,
            examples=(f"just up {name}{_CONTEXT.get(name, '')}",),
        )
        for name, provider in PROVIDERS.items()
    },
    metavar="CLUSTER",
    examples=("just up kind", "just up remote --context my-cluster"),
)
DOWN = Verb(
    "remove what `just up` made; an existing cluster of yours stays",
    None,
    words={
        name: Verb(
            provider.about,
            provider.down,
            provider.down_takes,
            examples=(f"just down {name}{_CONTEXT.get(name, '')}",),
        )
        for name, provider in PROVIDERS.items()
    },
    metavar="CLUSTER",
    examples=("just down kind", "just down remote --context my-cluster"),
)
WITH = Verb(
    "start a variant, run your own command against it (at $LAB_URL, with the host $LAB_HOST), and stop it",
    _run_with,
    {
        "variant": VARIANT,
        "command": {
            "nargs": argparse.REMAINDER,
            "metavar": "CMD",
            "help": "the command and its arguments; a shell is needed where it uses variables",
        },
    },
    TARGETED,
    examples=(
        "just with ingress-nginx sh -c 'curl -i $LAB_URL/healthz'",
        "just with keepalive sh -c 'wrk -c64 $LAB_URL/1kB.bin'",
    ),
)
