"""Ways to get a cluster, a module each, and the files that describe the clusters; nothing lists them.

`kind.py` is `just up kind`, `eks_a1.py` is `just up eks-a1`. Such a module has ABOUT (a line for --help) and the
functions of `Provider`; it imports what it needs when they are called, so that `--help` is quick.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Protocol, cast

from rich.console import Console


class Provider(Protocol):
    """`up` is idempotent, `down` fine where there is nothing. Both talk on stderr and raise LabError."""

    ABOUT: str

    def up_arguments(self, verb: argparse.ArgumentParser) -> None: ...
    def down_arguments(self, verb: argparse.ArgumentParser) -> None: ...
    def up(self, options: argparse.Namespace, talk: Console) -> None: ...
    def down(self, options: argparse.Namespace, talk: Console) -> None: ...


def providers() -> Mapping[str, Provider]:
    """Each by the name that the command line has for it."""
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.ispkg]
    return {name.replace("_", "-"): cast("Provider", importlib.import_module(f"{__name__}.{name}")) for name in names}
