"""`with`: a command in the client's place, beside a variant that is up."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder
from lab.commands.arguments import add_target, inside, variant_name


def add(adder: Adder) -> None:
    verb = adder(_with, "bring a variant up and run a command in the client's place (LAB_URL, LAB_HOST)")
    add_target(verb)
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
