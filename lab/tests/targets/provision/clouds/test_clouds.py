"""The clouds' clusters without a cloud: what is waited for, what is verified, what a sum is made of. The rest is in clouds.bats."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.targets.provision.clouds import flow, prices
from lab.targets.provision.clouds.cli import Cli, CloudError
from lab.targets.provision.clouds.flow import Found, Say
from lab.targets.provision.clouds.prices import Nodes


class Cloud:
    """One whose cluster passes through the given states, and of which `remains` is left each time it is looked for."""

    name, file, cluster = "doks", Path("lab/targets/provision/doks.yaml"), "lab in nyc1"

    def __init__(self, states: list[str], remains: list[list[str]] | None = None) -> None:
        self.states, self.remains, self.done = states, remains or [[]], list[str]()

    def find(self) -> Found | None:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return Found("1", state, True, state == "running") if state else None

    def plan(self) -> list[str]:
        return ["1 × machine"]

    def create(self, say: Say) -> None:
        self.done.append("create")

    def kubeconfig(self, path: Path) -> None:
        path.write_text("contexts: [{name: mine}]")

    def removal(self, found: Found) -> list[str]:
        return ["1 × machine"]

    def remove(self, found: Found, say: Say) -> None:
        self.done.append("remove")

    def left(self, found: Found) -> list[str]:
        return self.remains.pop(0) if len(self.remains) > 1 else self.remains[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "POLL_S", 0.01)


def yes(question: str) -> None: ...


def no(question: str) -> None:
    raise UsageError("just up", "no")


def test_a_cluster_that_is_there_is_made_ready_to_measure_on(tmp_path: Path) -> None:
    said: list[str] = []
    cloud = Cloud(["", "running"])
    flow.up(cloud, tmp_path, said.append, yes)
    assert cloud.done == ["create"]
    assert said[-1].endswith("--target remote --context mine")


def test_without_a_yes_nothing_is_created_or_removed(tmp_path: Path) -> None:
    for verb, states in ((flow.up, [""]), (flow.down, ["running"])):
        cloud = Cloud(states)
        with pytest.raises(UsageError):
            verb(cloud, tmp_path, print, no)
        assert cloud.done == []


def test_a_cluster_that_is_not_ready_is_told_with_how_to_go_on(tmp_path: Path) -> None:
    """The cloud's own command line has waited for it."""
    for states in (["", "provisioning"], ["provisioning"]):
        with pytest.raises(CloudError, match=r"lab in nyc1: is provisioning\n.*just up doks.*just down doks"):
            flow.up(Cloud(states), tmp_path, print, yes)
        assert not (tmp_path / "clusters").exists()


def test_removal_is_verified_until_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    flow.down(Cloud(["running"], [["lab", "node-1"], ["node-1"], []]), tmp_path, said.append, yes)
    assert said[-1] == "lab in nyc1 is gone"
    monkeypatch.setattr(flow, "GONE_S", 0.0)
    with pytest.raises(CloudError, match="still there after .*: node-1"):
        flow.down(Cloud(["running"], [["node-1"]]), tmp_path, print, yes)


def test_a_sum_is_of_machines_addresses_disks_and_the_control_plane() -> None:
    lines = prices.lines("aws", [Nodes("proxy", 2, "a1.4xlarge", 100)])
    assert lines[0] == "2 × a1.4xlarge (proxy): about 0.85 USD an hour"  # 2 × (0.408 + 0.005 + 100 × 0.00011)
    assert lines[2].startswith("together: about 0.95 USD an hour")
    with pytest.raises(UsageError, match="no price for m9.huge"):
        prices.lines("aws", [Nodes("proxy", 1, "m9.huge")])


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "slow"
    stub.write_text("#!/bin/sh\necho begun\nexec sleep 60\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    said: list[str] = []
    with pytest.raises(CloudError, match=r"slow create: not done after 0 minutes\n.*look"):
        Cli("slow", "install it", ()).do(["create", "--x"], said.append, 0.5, "look")
    assert said == ["begun"]
