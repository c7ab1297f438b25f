"""`just up doks`, `just down doks`: see lab.targets.provision.clouds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab.targets.provision.clouds.commands import Commands

if TYPE_CHECKING:
    from lab.targets.provision.clouds.flow import Cloud

ABOUT = "the published DigitalOcean environment, by doctl (costs money; asks first)"


def _cloud() -> Cloud:
    from lab.targets.provision.clouds.doks import Doks

    return Doks(Path(__file__).with_name("doks.yaml"))


_COMMANDS = Commands(_cloud)
up_arguments = down_arguments = _COMMANDS.arguments
up, down = _COMMANDS.up, _COMMANDS.down
