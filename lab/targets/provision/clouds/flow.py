"""What `just up` and `just down` do with a cloud's cluster: show what will be made or removed, ask, do it, verify it.

Refuses to touch a cluster of the same name that does not carry the lab's mark. Nothing in the cloud changes before the
yes. Both are idempotent: a cluster that is there is brought to its end state, one that is gone is said to be gone.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml
from rich.console import Console

from lab.base.errors import UsageError
from lab.targets.provision.clouds.asking import confirm
from lab.targets.provision.clouds.cli import CloudError

Say = Callable[[str], None]
Confirm = Callable[[str], None]
"""Asks the question; returns for a yes, raises UsageError otherwise."""
CACHE = Path(__file__).resolve().parents[4] / ".cache"
GONE_S = 900.0
POLL_S = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """A cluster that is there. `state` as the cloud calls it; `ours`: it carries the lab's mark."""

    id: str
    state: str
    ours: bool
    ready: bool


class Cloud(Protocol):
    """`name` as `just up` takes it, `file` that describes the cluster, `cluster` what it is called, with the region: `lab in nyc1`."""

    name: str
    file: Path
    cluster: str

    def find(self) -> Found | None:
        """What is there under that name. UsageError when the cloud cannot be asked (not installed, not logged in)."""

    def plan(self) -> list[str]:
        """What `create` will make, and what it costs; changes nothing."""
        ...

    def create(self, say: Say) -> None:
        """Returns when the cloud's own command line has waited to the end."""

    def kubeconfig(self, path: Path) -> None:
        """Writes one for this cluster only, into a file that is not there yet."""

    def removal(self, found: Found) -> list[str]:
        """What `remove` will remove, and what stays and goes on costing."""
        ...

    def remove(self, found: Found, say: Say) -> None:
        """Begins at least."""

    def left(self, found: Found) -> list[str]:
        """What of it is still there, by name; empty when it is gone."""
        ...


def commanded(
    verb: Callable[[Cloud, Path, Say, Confirm], None], cloud: Cloud, options: argparse.Namespace, talk: Console
) -> None:
    """`up` or `down` as the command line has it. A cloud's words are no markup."""

    def ask(question: str) -> None:
        if not options.yes:
            confirm(f"just {verb.__name__} {cloud.name}", talk, question)

    verb(cloud, CACHE, lambda line: talk.print(line, markup=False, highlight=False, soft_wrap=True), ask)


def up(cloud: Cloud, cache: Path, say: Say, ask: Confirm) -> None:
    """Create it unless it is there, and say how to measure there. CloudError for one that is not ready then."""
    found = _ours(cloud)
    if found is None:
        say("\n  ".join([f"{cloud.cluster} will be created from {os.path.relpath(cloud.file)}:", *cloud.plan()]))
        ask(f"Create {cloud.cluster}?")
        cloud.create(say)
        found = _ours(cloud)
    else:
        say(f"{cloud.cluster} is there already ({found.state}): nothing is created")
    if found is None or not found.ready:  # a command line that has returned may only have warned
        remedy = f"`just up {cloud.name}` looks again; `just down {cloud.name}` removes what there is"
        raise CloudError(cloud.cluster, f"is {found.state if found else 'not there'}", remedy)
    path = _kubeconfig(cloud, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    cloud.kubeconfig(path)
    path.chmod(0o600)
    say(
        f"ready. It costs money until `just down {cloud.name}`. Its nodes pull the images; that of the generators, which\n"
        "no public registry has, from wherever LAB_IMAGES says that you have put it (lab/targets/provision/README.md).\n"
        f"Then measure there with\n  KUBECONFIG={path} just bench baseline --target remote --context {_context(path)}"
    )


def down(cloud: Cloud, cache: Path, say: Say, ask: Confirm) -> None:
    """List what will be removed, ask, remove it, and verify that it is gone."""
    found = _ours(cloud)
    if found is None:
        say(f"{cloud.cluster} is not there: nothing to remove")
    else:
        say("\n  ".join([f"{cloud.cluster} will be removed:", *cloud.removal(found)]))
        ask(f"Remove {cloud.cluster}?")
        cloud.remove(found, say)
        deadline = time.monotonic() + GONE_S
        while left := cloud.left(found):
            if time.monotonic() > deadline:
                fault = f"still there after {GONE_S / 60:.0f} minutes: {', '.join(left)}"
                raise CloudError(cloud.cluster, fault, f"`just down {cloud.name}` again, or its web console")
            time.sleep(POLL_S)
        say(f"{cloud.cluster} is gone")
    _kubeconfig(cloud, cache).unlink(missing_ok=True)


def _kubeconfig(cloud: Cloud, cache: Path) -> Path:
    """The checkout's own file for this cluster, never the user's."""
    return cache / "clusters" / f"{cloud.name}.kubeconfig"


def _ours(cloud: Cloud) -> Found | None:
    found = cloud.find()
    if found is not None and not found.ours:
        fault = "there is such a cluster, and it does not carry the lab's mark: it is not touched"
        raise UsageError(cloud.cluster, fault, f"write another name into {os.path.relpath(cloud.file)}")
    return found


def _context(path: Path) -> str:
    """The only context in a kubeconfig that was written for one cluster."""
    names = [item["name"] for item in (yaml.safe_load(path.read_text()) or {}).get("contexts") or []]
    if len(names) != 1:
        fault = f"expected one context, got {', '.join(names) or 'none'}"
        raise CloudError(str(path), fault, "remove it and try again")
    return names[0]
