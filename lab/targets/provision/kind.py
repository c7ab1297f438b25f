"""`just up kind`: a cluster of containers on this machine's Docker engine, with the images that the variants need."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.base.quantities import number

ABOUT: str = "a cluster of containers on this machine (Docker and kind), from lab/targets/provision/kind.yaml"


def up_arguments(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--workers",
        type=number("--workers", 0, 8),
        default=0,
        help="nodes beside the control plane's: the first for the generator alone, from two on one for each role (default: 0)",
    )


def down_arguments(verb: argparse.ArgumentParser) -> None:
    pass


def up(options: argparse.Namespace, talk: Console) -> None:
    from lab.targets.cluster import kind  # see the package's docstring

    kind.up(options.workers, talk)


def down(options: argparse.Namespace, talk: Console) -> None:
    from lab.targets.cluster import kind

    kind.down(talk)
