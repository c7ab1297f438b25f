"""The local target: no cluster, no Docker, no root."""

from lab.targets.local.target import LocalSystem, LocalTarget

__all__ = ["TARGET", "LocalSystem", "LocalTarget"]

TARGET = LocalTarget()
