"""The local target: no cluster, no Docker, no root."""

from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget

__all__ = ["TARGET", "LocalSystem", "LocalTarget"]

TARGET = LocalTarget()
