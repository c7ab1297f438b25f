"""manifests/clusters/node-tuning: the script that changes a node, run for real on a network namespace's own sysctls."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.targets.cluster.rollout import NODE_REFUSES

SCRIPT = Path(__file__).parents[4] / "manifests/clusters/node-tuning/tune.sh"
NAME, BEFORE = "net.ipv4.ip_local_port_range", "32768 60999"


@pytest.fixture
def node(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs shell commands, all in one fresh network namespace, with `tune ACTION` among them."""
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / NAME).write_text("1024 65000\n")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]

    def run(commands: str) -> subprocess.CompletedProcess[str]:
        tune = f'tune() {{ sh {SCRIPT} "$1" {tmp_path}/settings {tmp_path}/state; }}\n'
        value = f'value() {{ tr "\\t" " " </proc/sys/{NAME.replace(".", "/")}; }}\n'
        reset = f'echo "{BEFORE}" >/proc/sys/{NAME.replace(".", "/")}\n'
        argv = ["unshare", *user, "--net", "sh", "-euc", tune + value + reset + commands]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)

    return run


Node = Callable[[str], subprocess.CompletedProcess[str]]


def test_what_was_there_comes_back(node: Node, tmp_path: Path) -> None:
    for commands, printed in (
        ("tune apply; value; tune revert; value", ["1024 65000", BEFORE]),
        # A second apply after a crash keeps what was there at first.
        ("tune apply; tune apply; tune revert; value; tune revert; value", [BEFORE, BEFORE]),
    ):
        done = node(commands)
        assert done.stdout.splitlines() == printed, done.stderr
    done = node("tune apply; tune verify; echo good; tune revert; tune verify")
    assert done.stdout.splitlines() == ["good"] and done.returncode == 1
    assert done.stderr.strip() == f"{NAME}: asked for 1024 65000, the node has {BEFORE}"
    done = node(
        f"sh {SCRIPT} hold {tmp_path}/settings {tmp_path}/state & pid=$!\n"
        "i=0; while ! tune verify 2>/dev/null; do i=$((i + 1)); [ $i -lt 100 ]; sleep 0.05; done\n"
        f"value; kill -{signal.SIGTERM.value} $pid; wait $pid; value"
    )
    assert done.stdout.splitlines() == ["1024 65000", BEFORE], done.stderr
    (tmp_path / "settings" / "net.ipv4.tcp_fin_timeout").write_text("soon\n")  # sorted after NAME
    done = node(f"sh {SCRIPT} hold {tmp_path}/settings {tmp_path}/state || echo ended $?; value")
    assert done.stdout.splitlines() == ["ended 1", BEFORE], done.stderr
    assert f"net.ipv4.tcp_fin_timeout: {NODE_REFUSES}" in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        # Not a namespace's own, as in a node that is a container.
        ("net.core.rmem_max", "8388608", "Permission denied"),
        ("irq-affinity", "0,1", "has no interrupts of its own"),
    ],
)
def test_what_it_may_not_set_is_refused_with_why(name: str, value: str, why: str, node: Node, tmp_path: Path) -> None:
    (tmp_path / "settings" / name).write_text(f"{value}\n")
    done = node(f"sh {SCRIPT} hold {tmp_path}/settings {tmp_path}/state || echo ended; value; ls {tmp_path}/state")
    assert done.stdout.splitlines() == ["ended", BEFORE], done.stderr
    assert why in done.stderr and done.stderr.splitlines()[-1] == f"tune.sh: {name}: {NODE_REFUSES}"
