"""The local target's network for real: a Service's NAT, a shaped link, helpers, kernel knobs, what a load leaves; inside its namespaces, as root and not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError
from lab.model.endpoint import Role
from lab.model.leftovers import find_undrained_faults
from lab.model.pages import PAGES
from lab.model.variants.variants import Variant, load_variant
from lab.targets.local.sandbox import link_delay
from lab.targets.local.sandbox.namespaces import is_real_root
from lab.targets.local.sandbox.network import CLIENT, End
from lab.targets.local.system import PROBED_PAGE, LocalSystem
from lab.targets.local.target import LocalTarget
from lab.tests.support.inside import balanced
from lab.tests.support.waiting import until
from lab.tests.targets.readback.answers import observed

HAS_TAP = os.access("/dev/net/tun", os.R_OK | os.W_OK)
with_tap = pytest.mark.skipif(not HAS_TAP, reason="this user may not open /dev/net/tun")


def get(system: LocalSystem, page: str = "1kB.bin") -> bytes:
    answer = system.fetch(system.entry(), f"/{page}", 20.0)
    assert answer.status == 200 and len(answer.body) == PAGES[page]
    return answer.body


def node_address() -> str | None:
    """Of the place that does the NAT; None where there is none."""
    if not Path("/run/netns/node").exists():
        return None
    text = subprocess.run(
        ["ip", "-n", "node", "-j", "address", "show", "lo"], capture_output=True, text=True, check=True
    ).stdout
    return next(item["local"] for item in json.loads(text)[0]["addr_info"] if item["local"].startswith("10."))


def clients_seen(system: LocalSystem) -> list[set[str]]:
    """Of each proxy pod the addresses that asked it for a page, from its access log."""
    logs = [runner.process.stdout.read_text() for runner in system.kubelet.runners("proxy")]
    return [{line.split()[0] for line in log.splitlines() if "GET /" in line} for log in logs]


def test_behind_a_load_balancer_service_every_proxy_is_asked_through_the_node(target: LocalTarget) -> None:
    with target.up(balanced("Cluster", replicas=2)) as system:
        for _ in range(40):  # all to one pod: once in 2^39
            get(system)
        first, second = clients_seen(system)
        assert first == second == {node_address()}
        assert system.entry().way == "through a node's Service NAT (nftables, 2 endpoints, masquerade)"
        assert "node/conntrack_drop" in system.counters()


def test_under_the_local_policy_the_client_is_seen_and_both_ends_of_its_link_are_shaped(target: LocalTarget) -> None:
    with target.up(balanced("Local")) as system:
        get(system)
        (seen,) = clients_seen(system)
        assert seen and seen != {node_address()}
        assert system.entry().way.endswith("(nftables, 1 endpoint, the client's address kept)")

        def rates() -> list[float]:
            """Bytes per second of all token buckets there are."""
            found: list[float] = []
            for place in Path("/run/netns").iterdir():
                text = subprocess.run(
                    ["tc", "-n", place.name, "-j", "qdisc", "show"], capture_output=True, text=True, check=True
                ).stdout
                found += [item["options"]["rate"] for item in json.loads(text) if item["kind"] == "tbf"]
            return found

        for mbit in (1.0, 25.0, 25.0, 1000.0, 10_000.0):
            system.shape(mbit)
            assert rates() == pytest.approx([mbit * 125_000] * 2, rel=0.02)
            get(system)
        for _ in range(2):
            system.shape(None)
            assert rates() == []
        get(system)


def client_link(system: LocalSystem) -> tuple[End, End]:
    """The link from the client to the only place that it is joined to beside the node."""
    net = system.net
    place = next(each for each in net.places if each.name == system.pods("backend")[0]["metadata"]["name"])
    return (net[CLIENT], net.device(place.name)), (place, net.device(CLIENT))


def round_trips_ms(system: LocalSystem) -> float:
    """The shortest of some round trips from the client to the far end of its link."""
    link = client_link(system)
    return 1e3 * min(link_delay.list_round_trips_s(link))


@with_tap
def test_a_delayed_link_holds_each_round_trip_and_nothing_is_left_of_it(
    target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lab itself refuses a delay that its round trips do not show within 1 ms; here a busy machine may add to it."""
    monkeypatch.setattr(link_delay, "MAX_ERROR_S", 1.0)
    with target.up(load_variant("direct")) as system:
        bare_ms = round_trips_ms(system)
        for delay_ms in (5.0, 20.0, 100.0):
            system.shape(None, delay_ms)
            assert round_trips_ms(system) >= bare_ms + delay_ms - 1
            assert len(system.processes("lab")) == 2
            get(system, "1MB.bin")
            system.shape(None)
        assert round_trips_ms(system) < bare_ms + 5
        assert len(system.processes("lab")) == 1
        place = client_link(system)[1][0]
        shown = subprocess.run(["ip", "-n", place.namespace, "link"], capture_output=True, text=True, check=True).stdout
        assert link_delay.TAP not in shown


@with_tap
def test_a_delay_that_round_trips_do_not_show_is_told(target: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    with target.up(load_variant("direct")) as system:
        monkeypatch.setattr(link_delay, "ROUNDS", 1)
        monkeypatch.setattr(link_delay, "MAX_ERROR_S", -1.0)
        with pytest.raises(MeasuringError, match="asked for a delay of 20 ms, round trips got longer by 2"):
            system.shape(None, 20.0)
        monkeypatch.undo()
        monkeypatch.setattr(link_delay, "PROGRAM", Path("/nowhere"))
        with pytest.raises(MeasuringError, match="no packets can be held: .*/nowhere"):
            system.shape(None, 20.0)
        get(system)


@with_tap
def test_a_delay_whose_program_ends_is_told(target: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_delay, "MAX_ERROR_S", 1.0)
    with target.up(load_variant("direct")) as system:
        system.shape(None, 20.0)
        (program,) = (pid for pid in system.processes("lab") if pid != os.getpid())
        os.kill(program, signal.SIGKILL)
        until(lambda: psutil.Process(program).status() == psutil.STATUS_ZOMBIE, "the program still runs")
        with pytest.raises(MeasuringError, match="the program that holds packets ended with status -9"):
            system.shape(None)
        get(system)


def test_a_link_that_is_not_shaped_is_told(
    target: LocalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with target.up(load_variant("direct")) as system:
        (tmp_path / "tc").write_text("#!/bin/sh\necho '[]'\n")
        (tmp_path / "tc").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        with pytest.raises(MeasuringError, match="asked for 1250000 bytes/s, tc shows none"):
            system.shape(10)
        for words, said in (("show", "tc cannot be read: no such thing"), ("qdisc", "tc: no such thing")):
            fails = f'#!/bin/sh\ncase "$*" in *{words}*) echo no such thing >&2; exit 2 ;; esac\n'
            (tmp_path / "tc").write_text(fails)
            with pytest.raises(MeasuringError, match=said):
                system.shape(10)
        monkeypatch.undo()


@pytest.mark.parametrize("variant", [load_variant("direct"), balanced("Cluster")])
def test_the_clients_bytes_are_counted(target: LocalTarget, variant: Variant) -> None:
    with target.up(variant) as system:
        before = system.counters()
        get(system, "10MB.bin")
        after = system.counters()
        received = after["client/rx_bytes"] - before["client/rx_bytes"]
        assert PAGES["10MB.bin"] < received < 1.1 * PAGES["10MB.bin"]
        assert 0 < after["client/tx_bytes"] - before["client/tx_bytes"] < received / 10


def test_a_helper_lives_in_its_roles_network_on_its_cpus_and_ends_with_the_system(target: LocalTarget) -> None:
    with target.up(load_variant("baseline")) as system:
        roles: tuple[Role, ...] = ("proxy", "backend")
        helpers = {role: system.spawn(role, ["sh", "-c", "sleep 60 & wait"]) for role in roles}
        client = system.spawn("generator", ["sleep", "60"])
        for role in roles:
            pid = helpers[role].pid
            until(lambda pid=pid, role=role: Path(f"/proc/{pid}/ns/net").stat() == network_of(system, role))
            until(lambda pid=pid, role=role: frozenset(os.sched_getaffinity(pid)) == target.cpus()[role])
        assert client.poll() is None
    assert all(helper.returncode is not None for helper in (*helpers.values(), client))
    with target.up(load_variant("direct")) as system, pytest.raises(UsageError, match="no such pod"):
        system.spawn("proxy", ["true"])


def network_of(system: LocalSystem, role: Role) -> os.stat_result:
    return Path(f"/proc/{system.kubelet.runners(role)[0].process.pid}/ns/net").stat()


def test_packet_steering_takes_root_and_is_read_back_from_every_queue(target: LocalTarget) -> None:
    variant = load_variant("packet-steering")
    if not is_real_root():
        with pytest.raises(NotMeasurableError, match="refuses in a user namespace: not measurable: root"):
            target.check_variant(variant, [])
        return
    own = ",".join(map(str, sorted(target.cpus()["proxy"])))
    with target.up(variant) as system:
        assert observed(system, kind="rps", value="own") == (True, "own", "")
        assert observed(system, kind="rps", value=own)[0]
        assert observed(system, kind="rps", role="backend", value="own")[1] == "none"


SOME = 200
"""TIME_WAIT sockets that a second of load leaves at least, on a busy machine too."""


@pytest.mark.skipif(shutil.which("wrk") is None, reason="no wrk on PATH")
def test_a_pool_of_one_leaves_ports_waiting_and_a_pool_of_many_none(target: LocalTarget, tmp_path: Path) -> None:
    for name, leaves in (("upstream-pool-1", True), ("baseline", False)):
        with target.up(load_variant(name)) as system:
            first = system.leftovers()
            assert not [*find_undrained_faults(first, None)] and first.old_workers == 0 and not first.unseen
            assert first.port_range == {"proxy": 28_232, "backend": 28_232}
            endpoint = system.entry()
            argv = ["wrk", "-c32", "-t1", "-d1s", "-H", f"Host: {endpoint.host}", f"{endpoint.base_url}/{PROBED_PAGE}"]
            with (tmp_path / "out").open("wb") as out:
                system.popen(argv, tmp_path, out, out).wait(timeout=30)
            left = system.leftovers()
            towards = f"{system.pod_address('backend')}:"
            waiting = sum(count for where, count in left.time_wait["proxy"].items() if where.startswith(towards))
            assert (waiting >= SOME) is leaves, (name, left)
            assert left.memory_bytes["proxy"] > 1_000_000 and left.accept_queue["proxy"] == 0
