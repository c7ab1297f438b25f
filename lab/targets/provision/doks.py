"""`just up doks`, `just down doks`: see lab.targets.provision.clouds."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.targets.provision.clouds.asking import add_yes

ABOUT = "the published DigitalOcean environment, by doctl (costs money; asks first)"
up_arguments = down_arguments = add_yes


def up(options: argparse.Namespace, talk: Console) -> None:
    from lab.targets.provision.clouds import doks, flow

    flow.commanded(flow.up, doks.Doks(), options, talk)


def down(options: argparse.Namespace, talk: Console) -> None:
    from lab.targets.provision.clouds import doks, flow

    flow.commanded(flow.down, doks.Doks(), options, talk)
