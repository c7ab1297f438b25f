"""Routes and endpoints that change while a system of the local target is up: real proxies, inside its namespaces."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest

from lab.base.errors import MeasuringError
from lab.model.events import Event
from lab.model.variants.variants import load_variant
from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget
from lab.tests.support import changing_objects
from lab.tests.support.changing_objects import ROUTED as HOST
from lab.tests.support.changing_objects import SERVICE, route
from lab.tests.support.inside import edited, faulty, pod_of
from lab.tests.support.waiting import until

FOLLOWED = ("okd-routes-10", "baseline")


class Up:
    """A system, its routing, and what happened to it."""

    def __init__(self, system: LocalSystem) -> None:
        self.system, self.routing, self.log = system, system.routing, system.log
        self.wanted = self.routing.objects

    def status(self, host: str = HOST) -> int:
        entry = replace(self.system.entry(), host=host, hosts=(host,))
        try:
            return self.system.fetch(entry, "/1kB.bin", 6.0).status  # HAProxy tries a refused connection for 3 s
        except OSError:
            return 0

    def events(self, kind: str) -> list[Event]:
        in_time = sorted(self.log.events, key=lambda event: event.at_s)
        return [event for event in in_time if event.kind == kind]

    def slice(self, port: int, ready: bool = True) -> Mapping[str, Any]:
        return changing_objects.endpoint_slice(port, (self.system.pod_address("backend"), ready))


@contextmanager
def up(target: LocalTarget, name: str, env: Mapping[str, str] | None = None, fails: bool = False) -> Iterator[Up]:
    """`env`: of the proxy's container. `fails`: the test has something fail."""

    def edit(item: dict[str, Any]) -> None:
        (container,) = pod_of(item)["containers"]
        container["env"] = [*(e for e in container.get("env", []) if e["name"] not in (env or {}))]
        container["env"] += [{"name": key, "value": value} for key, value in (env or {}).items()]

    variant = edited(load_variant(name), edit) if env else load_variant(name)
    with target.up(variant, changing=True) as system:
        if name != "nginx":
            until(lambda: "proxy/load_s" in system.gauges())
        yield Up(system)
        if not fails:
            system.routing.check()


def ingress(prefix: str = "") -> Mapping[str, Any]:
    return changing_objects.ingress(HOST, prefix)


def test_a_route_that_is_added_and_its_endpoints_move(target: LocalTarget) -> None:
    with up(target, "okd-routes-10", {"RELOAD_INTERVAL": "1s"}) as it:
        assert it.status() == 503 and it.status("bench-0000.apps.lab.test") == 200
        it.routing.apply([SERVICE, it.slice(8080), route("/7")])
        until(lambda: it.status() == 200)
        until(lambda: len(it.events("Reloaded")) == len(it.events("Reload")))
        reload, reloaded = it.events("Reload")[-1], it.events("Reloaded")[-1]
        assert reload.source == "proxy" and reload.object == "proxy-0" and reload.detail == reloaded.detail
        assert 0 < reloaded.at_s - reload.at_s < 5
        assert abs(it.routing.gauges()["proxy/load_s"] - (reloaded.at_s - reload.at_s)) < 0.2
        it.routing.apply([it.slice(9)])
        until(lambda: it.status() == 503)
        it.routing.apply([it.slice(8080)])
        until(lambda: it.status() == 200)
        it.routing.apply([it.slice(8080, ready=False)])
        until(lambda: it.status() == 503)
        assert len(it.events("Reload")) >= 4


def test_an_ingress_that_is_added_and_its_endpoints_move(target: LocalTarget) -> None:
    with up(target, "baseline") as it:
        assert it.status() == 404
        it.routing.apply([SERVICE, it.slice(8080), ingress("/7")])
        until(lambda: it.status() == 200)
        it.routing.apply([it.slice(8080, ready=False)])
        until(lambda: it.status() == 503)
        it.routing.apply([it.slice(8080)])
        until(lambda: it.status() == 200)
        until(lambda: len(it.events("Reloaded")) >= 3)
        begun = [event.at_s for event in it.events("Reload")]
        assert all(later - sooner > 2 for sooner, later in itertools.pairwise(begun))
        workers = it.system.processes("proxy")[1:]
        assert all(os.sched_getaffinity(pid) <= target.cpus()["proxy"] for pid in workers)


def test_changes_within_an_interval_are_one_reload(target: LocalTarget) -> None:
    with up(target, "okd-routes-10", {"RELOAD_INTERVAL": "1s"}) as it:
        it.routing.apply([SERVICE, it.slice(8080)])
        began = time.monotonic()
        for number in range(1, 31):
            it.routing.apply([route(f"/{number}")])
            time.sleep(max(0.0, began + number / 10 - time.monotonic()))
        until(lambda: "'/30'" in written(it.system))
        time.sleep(1.5)  # what was written last is loaded
        begun = [event.at_s for event in it.events("Reload")]
        assert 2 <= len(begun) <= 6
        assert all(later - sooner > 0.95 for sooner, later in itertools.pairwise(begun))
        assert it.status() == 200
        it.routing.apply([route("/30")])  # nothing new
        time.sleep(1.5)
        assert len(it.events("Reload")) == len(begun)


def test_a_router_that_is_restarted_starts_with_what_there_is_now(target: LocalTarget) -> None:
    with up(target, "okd-routes-10", {"RELOAD_INTERVAL": "2s"}) as it:
        it.routing.apply([SERVICE, it.slice(8080), route()])
        until(lambda: it.status() == 200)
        until(lambda: len(haproxies(it.system)) == 1)
        psutil.Process(haproxies(it.system)[0]).kill()
        until(lambda: it.system.restarts()["proxy-0/proxy"] == 1 and it.status() == 200)
        it.routing.apply([it.slice(8080, ready=False)])
        until(lambda: it.status() == 503)


def test_a_configuration_that_nginx_refuses_leaves_the_old_one_at_work(target: LocalTarget) -> None:
    with up(target, "baseline", fails=True) as it:
        it.routing.apply([SERVICE, it.slice(8080), ingress('/"')])
        until(lambda: faulty(it.routing.check))
        assert it.status("bench.lab.test") == 200 and it.events("Reload") == []
        with pytest.raises(MeasuringError, match="nginx -t"):
            it.routing.check()


def test_a_proxy_that_reads_no_routes_says_so(target: LocalTarget) -> None:
    with up(target, "nginx", fails=True) as it:
        it.routing.changed(it.wanted.pods, {})
        it.routing.check()
        with pytest.raises(MeasuringError, match="reads neither"):
            it.routing.apply([ingress()])
        it.routing.changed(it.wanted.role("proxy"), {})
        with pytest.raises(MeasuringError, match="backend's pods changed"):
            it.routing.check()


def written(system: LocalSystem) -> str:
    return system.exec("proxy", ["cat", "/var/lib/haproxy/conf/haproxy.config"]).stdout


def haproxies(system: LocalSystem) -> list[int]:
    found: list[int] = []
    for pid in system.processes("proxy"):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if psutil.Process(pid).name() == "haproxy":
                found.append(pid)
    return found


@pytest.mark.parametrize("name", ["okd-routes-10", "baseline", "nginx", "direct"])
def test_a_system_that_does_not_change_is_left_alone(target: LocalTarget, name: str) -> None:
    """How long its proxy took to load is known, and no thread of ours runs while it is measured."""
    with target.up(load_variant(name)) as system:
        until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(("rout", "reload"))])
        told = {"proxy/workers"} if name != "direct" else set[str]()
        assert set(system.gauges()) == told | ({"proxy/config_bytes", "proxy/load_s"} if name in FOLLOWED else set())
        assert all(value > 0 for value in system.gauges().values())
        if name in FOLLOWED:
            assert system.gauges()["proxy/load_s"] < 5 and system.gauges()["proxy/config_bytes"] > 5000
