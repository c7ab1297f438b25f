"""What the image of a controller stands for on this target: its own programs, from its own files.

A file has what `Image` asks for; `table` lists them. An image without a file here is what it is
on the local target (`lab.targets.local.images`): a backend's nginx, a plain proxy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lab.targets.local.containers import Realisation
from lab.targets.local.images import Context
from lab.targets.local.renewing import Renew

MACHINE = ""
"""SYSTEM and SHORT of what runs on the machine's own files: its program is brought as the local target brings it."""


class Image(Protocol):
    IMAGE: str
    """The repository's last parts, without registry and tag."""
    SYSTEM: str
    """Of the folder in scripts/tools/ that it is made from."""
    SHORT: str
    """Its name in manifests/images."""
    MADE: bool
    """scripts/controllers can make it where its image is not to be had; else LAB_IMAGES names it, or there is none."""
    PROXY: str
    """What the kernel calls the proxy's own processes; all others in its container are the control plane's."""
    CONFIG: str
    """Where its proxy's configuration lies in the container; empty where it lies nowhere."""
    SAYS: tuple[str, ...]
    """Of `stdout` and `stderr`, what its controller logs to."""

    def realise(self, context: Context) -> Realisation:
        """UsageError for anything asked of the image that cannot be honoured here, or files that are not there."""
        ...

    RENEW: Renew | None
    """How a reload of what it has makes new workers of its proxy; None where none does."""

    def about(self) -> str:
        """What it really is: release, and what stands in for what; empty where `realise` tells. UsageError when its files are not there."""
        ...

    def ignored(self, log: Iterable[str]) -> list[str]:
        """What the controller says that it ignores or refuses of what it was given, in its own words."""
        ...

    def complaints(self, log: Iterable[str]) -> list[str]:
        """What it says of why it does not serve, each once."""
        ...

    def loads(self, line: str) -> str | None:
        """`Reload` or `Reloaded` where a line of its log tells it."""
        ...
