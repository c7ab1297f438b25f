"""What `just up` and `just down` do with a cloud's cluster: show what will be made or removed, ask, do it, verify it.

Refuses to touch a cluster of the same name that does not carry the lab's mark. Nothing in the cloud changes before the
yes. Both are idempotent: a cluster that is there is brought to its end state, one that is gone is said to be gone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml
from rich.console import Console

from lab.base.errors import UsageError
from lab.targets.cluster import pods
from lab.targets.provision.clouds.cli import Cli, CloudError

Say = Callable[[str], None]
Confirm = Callable[[str], None]
"""Asks the question; returns for a yes, raises UsageError otherwise."""
CACHE = Path(__file__).resolve().parents[4] / ".cache"
READY_S = 900.0
GONE_S = 900.0
POLL_S = 10.0

KUBECTL = Cli("kubectl", "start the lab by scripts/shell, which brings it", ())


@dataclass(frozen=True, slots=True)
class Found:
    """A cluster that is there. `state` as the cloud calls it; `ready`, `broken`: what the lab makes of that."""

    id: str
    state: str
    ours: bool
    ready: bool
    broken: bool = False


class Cloud(Protocol):
    name: str
    """As `just up` takes it."""
    file: Path

    def cluster(self) -> str:
        """What it is called in the cloud, with the region: `ingress-lab-doks in nyc1`."""
        ...

    def nodes(self) -> int:
        """How many it has when it is whole."""
        ...

    def find(self) -> Found | None:
        """What is there under that name. UsageError when the cloud cannot be asked (not installed, not logged in)."""
        ...

    def plan(self) -> list[str]:
        """What `create` will make, and what it costs; changes nothing. UsageError for a file that is wrong."""
        ...

    def create(self, say: Say) -> None: ...
    def write_kubeconfig(self, path: Path) -> None:
        """For this cluster only, into a file that is not there yet."""
        ...

    def removal(self, found: Found) -> list[str]:
        """What `remove` will remove, and what stays and goes on costing."""
        ...

    def remove(self, found: Found, say: Say) -> None: ...
    def left(self, found: Found) -> list[str]:
        """What of it is still there, by name; empty when it is gone."""
        ...


def up(cloud: Cloud, cache: Path, say: Say, confirm: Confirm) -> None:
    """Create it unless it is there, wait until its nodes are ready, and say how to measure there."""
    KUBECTL.find()
    found = _ours(cloud)
    if found is None:
        say(f"{cloud.cluster()} will be created from {_short(cloud.file)}:")
        for line in cloud.plan():
            say(f"  {line}")
        confirm(f"Create {cloud.cluster()}?")
        cloud.create(say)
    else:
        say(f"{cloud.cluster()} is there already ({found.state}): nothing is created")
    _until_ready(cloud, say)
    path = kubeconfig(cloud, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    cloud.write_kubeconfig(path)
    path.chmod(0o600)
    context = _context(path)
    _until_nodes(cloud, path, context, say)
    say(
        f"ready. It costs money until `just down {cloud.name}`. Its nodes pull the images; that of the generators, which"
    )
    say("no public registry has, from wherever LAB_IMAGES says that you have put it (lab/targets/provision/README.md).")
    say("Then measure there with")
    say(f"  KUBECONFIG={path} just bench baseline --target remote --context {context}")


def down(cloud: Cloud, cache: Path, say: Say, confirm: Confirm) -> None:
    """List what will be removed, ask, remove it, and verify that it is gone."""
    found = _ours(cloud)
    if found is None:
        say(f"{cloud.cluster()} is not there: nothing to remove")
    else:
        say(f"{cloud.cluster()} will be removed:")
        for line in cloud.removal(found):
            say(f"  {line}")
        confirm(f"Remove {cloud.cluster()}?")
        cloud.remove(found, say)
        deadline = time.monotonic() + GONE_S
        while left := cloud.left(found):
            if time.monotonic() > deadline:
                fault = f"still there after {GONE_S / 60:.0f} minutes: {', '.join(left)}"
                raise CloudError(cloud.cluster(), fault, f"`just down {cloud.name}` again, or its web console")
            time.sleep(POLL_S)
        say(f"{cloud.cluster()} is gone")
    kubeconfig(cloud, cache).unlink(missing_ok=True)


def plainly(talk: Console) -> Say:
    """Lines as they are: a cloud's words are no markup."""
    return lambda line: talk.print(line, markup=False, highlight=False, soft_wrap=True)


def kubeconfig(cloud: Cloud, cache: Path) -> Path:
    """The checkout's own file for this cluster, never the user's."""
    return cache / "clusters" / f"{cloud.name}.kubeconfig"


def _ours(cloud: Cloud) -> Found | None:
    found = cloud.find()
    if found is not None and not found.ours:
        fault = "there is such a cluster, and it does not carry the lab's mark: it is not touched"
        raise UsageError(cloud.cluster(), fault, f"write another name into {_short(cloud.file)}")
    return found


def _until_ready(cloud: Cloud, say: Say) -> None:
    """A command line that has returned may not have waited to the end, or only warned: so the cloud is asked."""
    deadline, said = time.monotonic() + READY_S, ""
    while True:
        found = cloud.find()
        if found is not None and found.ready:
            return
        state = found.state if found is not None else "not there"
        remedy = f"`just down {cloud.name}` removes what there is"
        if found is not None and found.broken:
            raise CloudError(cloud.cluster(), f"is {state}", remedy)
        if time.monotonic() > deadline:
            raise CloudError(cloud.cluster(), f"is {state} after {READY_S / 60:.0f} minutes", remedy)
        if state != said:
            say(f"{cloud.cluster()} is {state}: waiting")
            said = state
        time.sleep(POLL_S)


def _until_nodes(cloud: Cloud, path: Path, context: str, say: Say) -> None:
    """All of the file's nodes, Ready: a cluster that runs may still wait for some of them, or never get them (quota)."""
    deadline, said = time.monotonic() + READY_S, ""
    where = ["--kubeconfig", str(path), "--context", context, "--request-timeout=20s"]
    while True:
        try:
            listed = json.loads(KUBECTL.ask(["get", "nodes", *where, "--output", "json"]))["items"]
            ready = sum(map(pods.ready, listed))
            fault = f"{ready} of {cloud.nodes()} nodes are ready"
        except UsageError as error:  # a fresh API server's name may not resolve yet
            ready, fault = 0, str(error).splitlines()[0]
        if ready >= cloud.nodes():
            return
        if time.monotonic() > deadline:
            remedy = f"`just up {cloud.name}` waits again; `just down {cloud.name}` removes it"
            raise CloudError(cloud.cluster(), f"{fault} after {READY_S / 60:.0f} minutes", remedy)
        if fault != said:
            say(f"{fault}: waiting")
            said = fault
        time.sleep(POLL_S)


def _context(path: Path) -> str:
    """The only context in a kubeconfig that was written for one cluster."""
    read = yaml.safe_load(path.read_text()) or {}
    names = [item["name"] for item in read.get("contexts") or []]
    if len(names) != 1:
        raise CloudError(
            str(path), f"expected one context, got {', '.join(names) or 'none'}", "remove it and try again"
        )
    return names[0]


def _short(path: Path) -> str:
    return os.path.relpath(path)
