"""OKD's router on the local target: real bring-ups, inside the target's namespaces, as root and not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.model.variants.variants import load_variant
from lab.systems.haproxy_router.control import CONF, RUN
from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget
from lab.targets.readback import read_back
from lab.tests.support.factories import make_point
from lab.tests.support.inside import answers, changed, pod_of
from lab.tests.support.waiting import until
from lab.tests.targets.readback.answers import observed


@pytest.fixture(autouse=True)
def hosts() -> Iterator[None]:
    """Every test leaves no name of a host."""
    before = Path("/etc/hosts").read_text()
    yield
    assert Path("/etc/hosts").read_text() == before


def variable(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    def edit(deployment: dict[str, Any]) -> None:
        container = pod_of(deployment)["containers"][0]
        others = [item for item in container["env"] if item["name"] != name]
        container["env"] = [*others, {"name": name, "value": value}]

    return edit


def starts(system: LocalSystem) -> int:
    """How often the script has started HAProxy."""
    (runner,) = system.kubelet.runners("proxy")
    return runner.process.stdout.read_text().count("started ")


def shell(system: LocalSystem, script: str) -> None:
    done = system.exec("proxy", ["sh", "-c", script])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "tls", "routes"),
    [
        ("okd-edge", "edge", 100),
        ("okd-passthrough", "passthrough", 100),
        ("okd-reencrypt", "reencrypt", 100),
        ("okd-hostnetwork", "none", 100),
        ("okd-routes-2000", "none", 2000),
    ],
)
def test_a_variant_of_the_router_comes_up_and_reads_back(target: LocalTarget, name: str, tls: str, routes: int) -> None:
    variant = load_variant(name)
    target.check_variant(variant, [make_point(routes="all")])
    with target.up(variant) as system:
        assert [str(reading) for reading in read_back(system, variant.readback) if not reading.ok] == []
        assert observed(system, kind="haproxy", name="Nbthread", value=str(len(target.cpus()["proxy"])))[0]
        entry = system.endpoint(make_point(routes="all"))
        assert len(entry.hosts) == routes and entry.tls == tls
        if routes == 100:  # what the variant itself does not ask for
            assert observed(system, kind="termination", value=tls)[:2] == (True, tls)
            assert observed(system, kind="routes", value="100")[:2] == (True, "100")
        answer = system.fetch(entry, "/8kB.txt", 2.0)
        assert answer.body == system.fetch(system.backend_endpoint(), "/8kB.txt", 2.0).body
        assert set(answer.tls) == (set() if tls == "none" else {"version", "cipher", "group", "key", "subject"})
        assert answer.tls.get("key", "RSA 2048") == "RSA 2048"
        assert system.restarts()["proxy-0/proxy"] == 0
        for pid in system.processes("proxy"):
            assert os.sched_getaffinity(pid) <= target.cpus()["proxy"]


def test_no_request_is_lost_over_a_reload_and_one_that_fails_leaves_the_old_process(target: LocalTarget) -> None:
    with target.up(changed("okd", variable("RELOAD_INTERVAL", "1s"))) as system:
        shell(system, f"echo reload >{RUN}/reload")
        while starts(system) < 2:
            assert answers(system)
        assert all(answers(system) for _ in range(50))
        shell(system, f"echo nonsense >>{CONF}/haproxy.config; echo reload >{RUN}/reload")
        until(lambda: "stays at work" in system.log_tail())
        assert answers(system) and system.restarts()["proxy-0/proxy"] == 0


def test_each_of_two_routers_answers_for_its_own_half(target: LocalTarget) -> None:
    variant = load_variant("okd+okd-sharded-2")
    point = make_point(routes="all")
    assert len(target.check_variant(variant, [point])[point.name].shards) == 2
    with target.up(variant) as system:
        assert [str(reading) for reading in read_back(system, variant.readback) if not reading.ok] == []
        first, second = system.endpoint(point).shards
        assert (first.url, len(first.hosts), len(second.hosts)) == ("http://10.65.0.1:80", 50, 50)
        assert second.url == "http://10.65.0.2:80"
        alone = replace(system.entry(), base_url=first.url)
        assert system.fetch(replace(alone, host=first.hosts[-1]), "/1kB.bin", 2.0).status == 200
        assert system.fetch(replace(alone, host=second.hosts[-1]), "/1kB.bin", 2.0).status == 503
        assert {pod.pod.name for pod in system.kubelet.pods if pod.pod.role == "proxy"} == {"proxy-0", "proxy-2-0"}
        # names lead there too, which TLS needs
        seen = subprocess.run([*system.client, "cat", "/etc/hosts"], capture_output=True, text=True, check=True)
        known = dict(line.split()[::-1] for line in seen.stdout.splitlines() if "apps.lab" in line)
        assert (known[first.hosts[0]], known[second.hosts[0]]) == ("10.65.0.1", "10.65.0.2")
