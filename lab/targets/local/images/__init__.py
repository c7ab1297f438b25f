"""What an image stands for on this machine. One file per image that needs more than its command executed.

Such a file has IMAGE (the repository's last parts, without registry and tag), STOP_SIGNAL (the image's STOPSIGNAL)
and `realise`. It is found by its presence in this folder; nothing lists it.
"""

from __future__ import annotations

import importlib
import pkgutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from lab.errors import NotMeasurableError
from lab.targets.local.objects import Objects
from lab.targets.local.pods import Container, Pod


@dataclass(frozen=True, slots=True)
class Context:
    """What a realisation may know. `addresses`: pod → IP; `somaxconn`, `open_files`: as its own process finds them."""

    container: Container
    pod: Pod
    objects: Objects
    addresses: Mapping[str, str]
    cpus: int
    somaxconn: int
    open_files: int


@dataclass(frozen=True, slots=True)
class Realisation:
    """What to start instead of the image. `files`: path → text, or `-> target` for a symbolic link."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    pre_stop: tuple[str, ...] | None = None
    """Instead of the manifest's preStop; None = as the manifest says."""


def refuse_workers(place: str, workers: int, context: Context, noun: str = "workers") -> None:
    """NotMeasurableError for more workers (or threads: `noun`) than the container has CPUs: their number would measure the scheduler (design.md §6)."""
    if workers > context.cpus:
        cpus = "1 CPU" if context.cpus == 1 else f"{context.cpus} CPUs"
        fault = f"asks for {workers} {noun}, the {context.pod.role} has {cpus} here"
        raise NotMeasurableError("cores", place, fault, f"a machine with more CPUs, or {context.cpus} at most")


def refuse_open_files(place: str, files: int, context: Context, asked: str = "") -> None:
    """NotMeasurableError for more open files than a process may have here: nginx would go on with fewer, and only log it.

    `asked`: what takes so many, where they are not asked for themselves.
    """
    if files > context.open_files:
        fault = f"{asked + ' take' if asked else 'asks for'} {files} open files, a container may have {context.open_files} here"
        remedy = "raise the hard limit of the shell that starts the lab (ulimit -Hn), or run it as root"
        raise NotMeasurableError("open files", place, fault, remedy)


class Image(Protocol):
    IMAGE: str
    STOP_SIGNAL: signal.Signals

    def realise(self, context: Context) -> Realisation:
        """UsageError for anything asked of the image that cannot be honoured here."""
        ...


def find(repository: str) -> Image | None:
    """The file for an image, whatever registry it comes from; None if it needs nothing special."""
    for module in pkgutil.iter_modules(__path__):
        image = cast("Image", importlib.import_module(f"{__name__}.{module.name}"))
        if f"/{repository}".endswith(f"/{image.IMAGE}"):
            return image
    return None
