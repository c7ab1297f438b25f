"""Pods that come and go on the local target, for real: processes, NAT, grace periods; inside its namespaces, as root and not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lab.base.errors import MeasuringError
from lab.model.events import Event
from lab.model.variants.variants import Variant, load_variant
from lab.targets.local.sandbox import cgroups
from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget
from lab.tests.support.factories import make_point
from lab.tests.support.inside import answers, asked, edited, faulty
from lab.tests.support.waiting import until


def changed(edit: Callable[[dict[str, Any]], None], of: str = "proxy", more: Sequence[dict[str, Any]] = ()) -> Variant:
    """`baseline` with a Deployment edited, its controller gone as soon as its nginx, and more objects."""
    at_once = "--post-shutdown-grace-period=0"
    soon = edited(load_variant("baseline"), lambda item: container_of(item)["args"].append(at_once))
    variant = edited(soon, edit, of=of)
    return variant.model_copy(update={"manifests": (*variant.manifests, *more)})


def container_of(deployment: dict[str, Any]) -> dict[str, Any]:
    return deployment["spec"]["template"]["spec"]["containers"][0]


def replicas(count: int) -> Callable[[dict[str, Any]], None]:
    return lambda item: item["spec"].update(replicas=count)


def names(system: LocalSystem, role: Any = "proxy") -> list[str]:
    return [pod["metadata"]["name"] for pod in system.pods(role)]


def happened(system: LocalSystem, kind: str) -> bool:
    return any(event.kind == kind for event in system.log.events)


def at(events: Sequence[Event], kind: str, of: str, last: bool = False) -> float:
    found = [event.at_s for event in events if event.kind == kind and event.object == of]
    return found[-1 if last else 0]


def test_a_hot_spare_killed_gracefully_costs_no_request(target: LocalTarget) -> None:
    with target.up(changed(replicas(2)), changing=True) as system:
        assert names(system) == ["proxy-0", "proxy-1"] or names(system) == ["proxy-1", "proxy-0"]
        with system.recorder() as recorder, asked(system) as client:
            assert system.end_pod("proxy", "delete")
            until(lambda: "proxy-2" in names(system) and happened(system, "Gone"))
        assert client.failed == [] and len(client.rows) > 20
        events = recorder.events()
        (ended,) = [event.object for event in events if event.kind == "Deleted"]
        kinds = [event.kind for event in sorted(events, key=lambda event: event.at_s) if event.object == ended]
        lasting = [kind for kind in kinds if kind not in ("Probe", "Unhealthy")]
        assert lasting == ["Deleted", "Killing", "Exited", "Gone"]
        assert "within its grace period" in [event.detail for event in events if event.object == ended]
        assert at(events, "Created", "proxy-2") <= at(events, "Started", "proxy-2") < at(events, "Ready", "proxy-2")
        assert [event.detail for event in events if event.kind == "Endpoints"] == ["1", "2"]
        assert any(event.kind == "Probe" and event.detail.startswith("readiness 0.0") for event in events)


def test_without_one_nothing_answers_until_the_replacement_is_ready(target: LocalTarget) -> None:
    with target.up(changed(replicas(1)), changing=True) as system:
        with system.recorder() as recorder, asked(system) as client:
            system.end_pod("proxy", "delete")
            until(lambda: names(system) == ["proxy-1"])
        events = recorder.events()
        outage_s = at(events, "Ready", "proxy-1") - at(events, "Killing", "proxy-0")
        assert set(client.failed) == {"0 [Errno 111] Connection refused"}
        assert client.gap_s == pytest.approx(outage_s, abs=0.6)


def test_a_host_port_keeps_the_replacement_waiting_until_the_old_pod_is_gone(target: LocalTarget) -> None:
    def edit(item: dict[str, Any]) -> None:
        container_of(item)["args"][-1] = "--post-shutdown-grace-period=2"
        for port in container_of(item)["ports"]:
            port["hostPort"] = port["containerPort"]

    with target.up(changed(edit), changing=True) as system:
        with system.recorder() as recorder, asked(system) as client:
            system.end_pod("proxy", "delete")
            until(lambda: names(system) == ["proxy-1"])
        events = recorder.events()
        assert at(events, "Created", "proxy-1") < at(events, "Gone", "proxy-0") < at(events, "Started", "proxy-1")
        assert at(events, "Gone", "proxy-0") - at(events, "Deleted", "proxy-0") > 2.5 and client.gap_s > 2.5


def test_an_eviction_waits_for_the_budget(target: LocalTarget) -> None:
    labels = {"matchLabels": {"lab/role": "proxy"}}
    spec = {"minAvailable": 1, "selector": labels}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "proxy"}, "spec": spec}
    with target.up(changed(replicas(1), more=[budget]), changing=True) as system:
        with system.recorder() as recorder:
            assert not system.end_pod("proxy", "evict")
        (refused,) = [event for event in recorder.events() if event.kind == "EvictionRefused"]
        assert refused.detail == "PodDisruptionBudget proxy needs 1 healthy pods and has 1"
        system.scale("proxy", 2)
        until(lambda: len(names(system)) == 2)
        with asked(system) as client:
            assert system.end_pod("proxy", "evict") and not system.end_pod("proxy", "evict")
            until(lambda: len(names(system)) == 2)
            assert system.end_pod("proxy", "evict")
            until(lambda: len(names(system)) == 2 and not {"proxy-0", "proxy-1"} & {*names(system)})
        assert client.failed == []


def test_a_crashed_container_is_started_again_in_its_pod_and_a_helper_ends_with_it(target: LocalTarget) -> None:
    with target.up(changed(replicas(1)), changing=True) as system:
        helper = system.spawn("backend", ["sleep", "600"])
        system.end_pod("backend", "delete")
        assert helper.wait(10.0) == -9
        until(lambda: names(system, "backend") == ["backend-1"])
        with system.recorder() as recorder:
            system.end_pod("proxy", "crash")
            until(lambda: system.restarts() == {"proxy-0/proxy": 1, "backend-1/backend": 0} and bool(names(system)))
        kinds = [(event.kind, event.detail) for event in recorder.events() if event.object == "proxy-0"]
        assert ("Exited", "ended by signal 9") in kinds and ("Started", "restart 1") in kinds
        assert [kind for kind, _ in kinds if kind in ("NotReady", "Ready", "Gone")] == ["NotReady", "Ready"]


def test_the_backend_is_scaled_and_rolled_and_the_proxy_follows(target: LocalTarget) -> None:
    with target.up(changed(replicas(1)), changing=True) as system:
        with asked(system) as client:
            system.scale("backend", 2)
            until(lambda: any(what == "backend-1" for *_, what in client.rows))
            system.scale("backend", 1)
            until(lambda: names(system, "backend") == ["backend-0"])
            assert system.fetch(system.backend_endpoint(), "/1kB.bin", 5.0).headers["x-lab-backend"] == "backend-0"
            system.roll("backend")
            until(lambda: names(system, "backend") == ["backend-2"])
            until(lambda: client.rows[-1][3] == "backend-2")
        assert system.fetch(system.backend_endpoint(), "/1kB.bin", 5.0).headers["x-lab-backend"] == "backend-2"


def test_a_proxy_without_cpu_is_throttled_and_let_go_again(target: LocalTarget) -> None:
    with target.up(changed(replicas(1)), changing=True) as system:
        if (tried := cgroups.try_limits()) and not tried[0]:
            with pytest.raises(MeasuringError, match="CPU limit of proxy-0-proxy"):
                system.squeeze("proxy", "10m")
            pytest.skip(f"no CPU limit can be set here, and that is said: {tried[1]}")
        assert system.counters()["proxy/cpu_throttled_periods"] == 0
        system.squeeze("proxy", "1m")
        system.fetch(system.entry(), "/100MB.bin", 120.0)  # which takes more CPU than it has in a second
        assert system.counters()["proxy/cpu_throttled_periods"] > 5
        system.squeeze("proxy", None)
        until(lambda: answers(system))
        with pytest.raises(MeasuringError, match="expected a quantity"):
            system.squeeze("proxy", "much")


@pytest.mark.parametrize(("frozen", "how"), [(False, "within its grace period"), (True, "SIGKILL")])
def test_a_hook_that_never_ends_holds_nothing_up(target: LocalTarget, frozen: bool, how: str) -> None:
    """The grace period, then the stop signal; 2 s more, as a kubelet's, then SIGKILL. The hook goes with the container."""

    def edit(item: dict[str, Any]) -> None:
        item["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
        container_of(item)["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 600 & wait; true"]}}}

    with target.up(changed(edit, of="backend"), changing=True) as system:
        with system.recorder() as recorder:
            if frozen:
                system.freeze("backend", True)
            system.end_pod("backend", "delete")
            until(lambda: happened(system, "Gone"))
        events = [event for event in recorder.events() if event.object == "backend-0"]
        (ended,) = [event.detail for event in events if event.kind == "Exited"]
        took_s = at(events, "Exited", "backend-0") - at(events, "Killing", "backend-0")
        least_s = 3.0 if frozen else 1.0
        assert ended.startswith(how) and least_s - 0.4 < took_s < 60


@pytest.mark.parametrize("after_s", [0.0, 0.03])
def test_a_pod_that_is_being_started_ends_with_the_system(target: LocalTarget, after_s: float) -> None:
    with target.up(changed(replicas(1)), changing=True) as system:
        system.scale("proxy", 3)
        system.scale("backend", 3)
        time.sleep(after_s)


def test_a_pod_that_cannot_be_started_is_told_by_the_recorder(target: LocalTarget) -> None:
    command = ["sh", "-c", 'case "$HOSTNAME" in proxy-0) ;; *) echo no such luck >&2; exit 3 ;; esac']

    def edit(item: dict[str, Any]) -> None:
        spec = item["spec"]["template"]["spec"]
        spec["initContainers"] = [{"name": "first", "image": "nginx", "command": command}]

    with target.up(changed(edit), changing=True) as system:
        with system.recorder() as recorder:
            system.end_pod("proxy", "delete")
            until(lambda: not names(system))
            until(lambda: faulty(recorder.events))
        with pytest.raises(MeasuringError, match=r"initContainers\[first\]: this init container exited 3"):
            recorder.events()


def test_a_steady_system_does_not_change(target: LocalTarget) -> None:
    with target.up(load_variant("baseline")) as system:
        assert system.endpoint(make_point()).way == ""
        for act in (system.recorder, lambda: system.end_pod("proxy", "delete"), lambda: system.scale("proxy", 2)):
            with pytest.raises(MeasuringError, match="of a steady system do not change"):
                act()
        with pytest.raises(MeasuringError, match="bring it up as `changing`"):
            system.apply([])


@pytest.mark.parametrize("name", ["workers-2", "nginx", "haproxy", "okd"])
def test_a_reload_makes_new_workers_and_the_old_ones_are_gone(target: LocalTarget, name: str) -> None:
    variant = load_variant(name)
    target.check_variant(variant, [make_point("ceiling", rate_rps=None, generations=2)])
    with target.up(variant) as system:
        before = set(system.processes("proxy"))
        assert system.leftovers().old_workers == 0
        first, second = system.renew(), system.renew()
        assert [system.leftovers().old_workers for _ in range(2)] == [0, 0]
        assert set(first.ended) < before and not set(first.began) & before
        assert set(second.ended) == set(first.began) and len(first.began) == (2 if name == "workers-2" else 1)
        assert set(second.began) <= set(system.processes("proxy"))
        assert system.fetch(system.entry(), "/1kB.bin", 2.0).status == 200 and set(system.restarts().values()) == {0}
