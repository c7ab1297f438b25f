"""`kill -9` at seeded moments of real runs, plain and paired: nothing of the lab's stays, every complete sample does, --resume finishes.

A disk fills or the API server is paused where the kill says so. One is in the measuring lane; all twenty, one of each successor and one
amid streams of events are long, those on kind after `just up kind`.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import pytest

from lab.commands.measuring import done_samples
from lab.records.store import RunStore, run_names
from lab.targets.cluster import kind
from lab.targets.cluster.api import CLIENT_NAMESPACE
from lab.targets.cluster.lease import LEASE
from lab.targets.local.sandbox import cgroups
from lab.tests.support.factories import plain_systems
from lab.tests.support.sweep_texts import TINY
from lab.tests.support.waiting import until
from lab.tests.targets.apiserver.test_apiserver import missing

ROOT = Path(__file__).parents[3]
DEADLINE_S = 300.0
PAIRED, PLAIN, ONE = 6, 3, 1
"""Blocks: from six on a baseline and itself are paired; one is killed as soon as its system is up and read back, and not resumed."""


@dataclass(frozen=True, slots=True)
class Kill:
    """`seed`: of the moment. `trouble`: what the machine has beside it."""

    seed: int
    target: Literal["local", "apiserver", "kind"]
    blocks: int
    trouble: Literal["none", "full disk", "paused server"] = "none"
    variant: str = "ingress-nginx"
    held_by: str = ""
    """The generator of a load of streams of events or WebSockets, which are open when it comes; empty = another load."""

    def __str__(self) -> str:
        return f"{self.held_by}{'-' * bool(self.held_by)}{self.variant}-{self.target}-{self.blocks}-{self.trouble}-{self.seed}".replace(
            " ", "-"
        )


FIRST = Kill(1, "local", PAIRED)
TWO_PLANES = Kill(456762944, "local", ONE, variant="envoy-gateway")
"""Its controller starts the proxy: three generations of processes in one container. By this seed it comes before its baseline."""
IN_STREAMS = Kill(45, "local", PLAIN, variant="envoy", held_by="events")
IN_WEBSOCKETS = Kill(46, "local", PLAIN, variant="haproxy", held_by="k6-websocket")
STREAMS = """
title = "streams"
question = "?"
blocks = 1

[[points]]
name = "streams"
generator = "GENERATOR"
connections = 50
every_s = 0.05
duration_s = 6
attempts = 2
"""
HERE = plain_systems("local")
SUCCESSORS = [
    Kill(22 + number, "local" if name in HERE else "apiserver", ONE, variant=name)
    for number, name in enumerate(plain_systems())
]
TWENTY = [
    FIRST,
    *(Kill(seed, "local", PLAIN) for seed in range(2, 4)),
    *(Kill(seed, "local", PAIRED) for seed in range(4, 6)),
    Kill(6, "kind", PLAIN),
    Kill(7, "kind", PAIRED),
    Kill(8, "kind", PLAIN, "paused server"),
    *(Kill(seed, "local", blocks, "full disk") for seed, blocks in zip(range(9, 13), (PLAIN, PAIRED) * 2, strict=True)),
    *(
        Kill(seed, "apiserver", blocks)
        for seed, blocks in zip(range(13, 17), (PLAIN, PLAIN, PAIRED, PAIRED), strict=True)
    ),
    Kill(17, "apiserver", PLAIN, "paused server"),
    Kill(18, "apiserver", PAIRED, "paused server"),
    Kill(19, "apiserver", PLAIN, "full disk"),
    Kill(20, "apiserver", PAIRED, "full disk"),
]


def lab(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "LAB_RUNS": str(folder / "runs"), "TMPDIR": str(folder / "scratch"), "PYTHONPATH": str(ROOT)}
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "lab", "bench", *words], env=env, cwd=ROOT, stdout=said, stderr=said
        )


def complete(folder: Path) -> Mapping[Path, str]:
    """Every file of a sample that is there whole → its digest."""
    found = (path for record in folder.glob("runs/*/samples/[!.]*/sample.json") for path in record.parent.iterdir())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def groups(owner: int) -> list[Path]:
    """Cgroup folders of the lab that was this process."""
    return [Path(at, name) for at, names, _ in os.walk("/sys/fs/cgroup") for name in names if f"-{owner}-" in name]


@contextmanager
def small(folder: Path, wanted: bool) -> Iterator[None]:
    """A file system of 60 MB for the runs."""
    if not wanted:
        yield
        return
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "lab-tiny", str(folder / "runs")], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder / "runs")], check=True)


def trouble(kill: Kill, folder: Path, family: list[psutil.Process]) -> None:
    if kill.trouble == "full disk":
        with suppress(OSError), (folder / "runs" / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(1 << 20))
                filler.flush()
    if kill.trouble == "paused server" and kill.target == "kind":
        docker("pause")
    elif kill.trouble == "paused server":
        servers = [each for each in family if "kube-apiserver" in each.name()]
        assert servers
        for server in servers:
            server.suspend()


def docker(what: Literal["pause", "unpause"]) -> None:
    """The node that has the API server."""
    subprocess.run(["docker", what, f"{kind.cluster_name()}-control-plane"], check=True, stdout=subprocess.DEVNULL)


def left_on_cluster() -> list[str]:
    """What runs made there, and who holds the lease: nothing but the generators' namespace may stay."""
    config = ["--kubeconfig", str(kind.kubeconfig()), "--request-timeout", "20s"]
    made = ("namespaces,clusterroles,clusterrolebindings,ingressclasses", "-l", "lab/run", "--output", "name")
    holder = ("leases", LEASE, "--namespace", CLIENT_NAMESPACE, "--output", "jsonpath={.spec.holderIdentity}")
    found: list[str] = []
    for which in (made, holder):
        command = ["kubectl", *config, "get", *which]
        found += subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [each for each in found if each != f"namespace/{CLIENT_NAMESPACE}"]


def resumed(folder: Path, name: str) -> tuple[int, int]:
    """(process, exit status) of `--resume`; asked again while the lease of the lab that was killed runs."""
    deadline, said = time.monotonic() + DEADLINE_S, folder / "said"
    while True:
        before = len(said.read_text())
        asked = lab(folder, "--resume", str(folder / "runs" / name))
        ended = asked.wait(DEADLINE_S)
        if "lease" not in said.read_text()[before:] or time.monotonic() > deadline:
            return asked.pid, ended
        time.sleep(2)


def survives(kill: Kill, folder: Path) -> None:
    if kill.target == "apiserver" and (why := missing()):
        pytest.skip(why)
    if kill.target == "kind" and not kind.kubeconfig().exists():
        pytest.skip("no cluster is up: `just up kind`")
    (folder / "scratch").mkdir()
    (folder / "runs").mkdir()
    held = STREAMS.replace("GENERATOR", kill.held_by)
    (folder / "tiny.toml").write_text(held if kill.held_by else f"{TINY}attempts = 2\n")
    lot = random.Random(kill.seed)
    with small(folder, kill.trouble == "full disk"):
        asked = [kill.variant, f"--target={kill.target}", f"--sweep={folder / 'tiny.toml'}"]
        first = lab(folder, *asked, f"--blocks={kill.blocks}", f"--seed={kill.seed}")
        outer = psutil.Process(first.pid)
        read_back = f"runs/*/readback/b01-{kill.variant}.json"
        up = (lambda: any(folder.glob(read_back))) if kill.blocks == ONE else (lambda: bool(complete(folder)))
        until(lambda: first.poll() is not None or up(), "no sample", DEADLINE_S)
        assert first.poll() is None, (folder / "said").read_text()
        family = outer.children(recursive=True)
        trouble(kill, folder, family)
        moment = time.monotonic() + lot.uniform(0, 0.5 if kill.blocks == ONE else 8)
        until(lambda: time.monotonic() > moment or first.poll() is not None, "", DEADLINE_S)
        with suppress(psutil.NoSuchProcess):
            family += outer.children(recursive=True)
        first.send_signal(signal.SIGKILL)
        first.wait()
        if kill.target == "kind" and kill.trouble == "paused server":
            docker("unpause")
        until(lambda: not any(map(alive, family)), "its processes are still there", DEADLINE_S)
        assert str(folder / "scratch") not in Path("/proc/self/mountinfo").read_text()
        (folder / "runs" / "filler").unlink(missing_ok=True)
        if kill.blocks == ONE:
            cgroups.sweep()  # what the next lab begins with
            assert groups(first.pid) == []
            return
        kept = complete(folder)
        (name,) = run_names(folder / "runs")
        second, ended = resumed(folder, name)
        assert ended in (0, 1), (folder / "said").read_text()  # 1: a machine with other things to do
        assert "Traceback" not in (folder / "said").read_text()
        run = RunStore.open(str(folder / "runs" / name))
        assert done_samples(run) == len(run.record.slots), (folder / "said").read_text()
        now = complete(folder)
        assert {path: now.get(path) for path in kept} == kept
        assert groups(first.pid) + groups(second) == []
        assert kill.target != "kind" or left_on_cluster() == []
        # The Kubernetes client's own copies of the context's certificates, readable by their owner alone, outlive it when it is killed.
        theirs = [each for each in (folder / "scratch").iterdir() if kill.target == "kind" and each.is_file()]
        assert all(b"-----BEGIN" in each.read_bytes() and not each.stat().st_mode & 0o077 for each in theirs)
        assert [each for each in (folder / "scratch").iterdir() if each not in theirs] == []


@pytest.mark.measures
@pytest.mark.parametrize("kill", [FIRST], ids=str)
def test_a_run_that_is_killed_in_the_middle_leaves_nothing(kill: Kill, tmp_path: Path) -> None:
    """A paired one of the baseline is finished, too."""
    survives(kill, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kill", [*TWENTY, *SUCCESSORS, TWO_PLANES, IN_STREAMS, IN_WEBSOCKETS], ids=str)
def test_one_killed_anywhere_leaves_nothing_and_is_finished(kill: Kill, tmp_path: Path) -> None:
    survives(kill, tmp_path)
