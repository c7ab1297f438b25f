"""`just up eks-a1`, `just down eks-a1`: see lab.targets.provision.clouds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab.targets.provision.clouds.commands import Commands

if TYPE_CHECKING:
    from lab.targets.provision.clouds.flow import Cloud

ABOUT = "the published AWS environment with A1 machines, by eksctl (costs money; asks first)"


def _cloud() -> Cloud:
    from lab.targets.provision.clouds.eks import Eks

    return Eks(Path(__file__).with_name("eks-a1.yaml"))


_COMMANDS = Commands(_cloud)
up_arguments = down_arguments = _COMMANDS.arguments
up, down = _COMMANDS.up, _COMMANDS.down
