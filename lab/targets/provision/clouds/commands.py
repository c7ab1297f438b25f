"""`up` and `down` of a cloud's cluster as `lab.targets.provision.Provider` has them: the yes, and what talks."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from lab.targets.provision.clouds.flow import Cloud


class Commands:
    """`cloud` is called once a verb is meant, so that `--help` is quick."""

    def __init__(self, cloud: Callable[[], Cloud]) -> None:
        self._cloud = cloud

    def arguments(self, verb: argparse.ArgumentParser) -> None:
        from lab.targets.provision.clouds.asking import add_yes

        add_yes(verb)

    def up(self, options: argparse.Namespace, talk: Console) -> None:
        from lab.targets.provision.clouds import flow
        from lab.targets.provision.clouds.asking import confirm

        cloud = self._cloud()
        flow.up(cloud, flow.CACHE, flow.plainly(talk), confirm(f"just up {cloud.name}", options.yes, talk))

    def down(self, options: argparse.Namespace, talk: Console) -> None:
        from lab.targets.provision.clouds import flow
        from lab.targets.provision.clouds.asking import confirm

        cloud = self._cloud()
        flow.down(cloud, flow.CACHE, flow.plainly(talk), confirm(f"just down {cloud.name}", options.yes, talk))
