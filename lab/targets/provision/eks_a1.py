"""`just up eks-a1`, `just down eks-a1`: see lab.targets.provision.clouds."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.targets.provision.clouds.asking import add_yes

ABOUT = "the published AWS environment with A1 machines, by eksctl (costs money; asks first)"
up_arguments = down_arguments = add_yes


def up(options: argparse.Namespace, talk: Console) -> None:
    from lab.targets.provision.clouds import eks, flow

    flow.commanded(flow.up, eks.Eks(), options, talk)


def down(options: argparse.Namespace, talk: Console) -> None:
    from lab.targets.provision.clouds import eks, flow

    flow.commanded(flow.down, eks.Eks(), options, talk)
