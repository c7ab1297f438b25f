"""The successors that tell of themselves, for real: what changes while they are up, and how they end; inside the local target's namespaces."""

from __future__ import annotations

import copy
import threading
import time

import pytest

from lab.base.errors import NotMeasurableError
from lab.model.endpoint import Endpoint
from lab.model.pages import PAGES
from lab.model.variants.variants import AS_SHIPPED, load_overlay, load_variant, variant_names
from lab.systems import table, workers
from lab.systems.manifests import objects
from lab.systems.system import ProxySystem
from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget
from lab.tests.support.factories import limited, make_point, plain_systems
from lab.tests.support.inside import asked, changed
from lab.tests.support.waiting import until


def changing() -> list[str]:
    """Systems as shipped that Gateway API describes and whose proxy takes changes while it runs."""
    roots = [overlay for overlay in map(load_overlay, variant_names()) if overlay.baseline is None]
    return [overlay.name for overlay in roots if overlay.family == AS_SHIPPED and _takes(overlay.name)]


def _takes(name: str) -> bool:
    found = objects.read_objects(load_variant(name).manifests)
    controls = [system.control for system in _systems(name) if system is not None]
    return bool(found.http_routes) and any(control is not None for control in controls)


def telling() -> list[str]:
    """Those whose proxy tells of itself."""
    return [
        name for name in changing() if any(system is not None and system.workers.metric for system in _systems(name))
    ]


def _systems(name: str) -> list[ProxySystem | None]:
    pods = objects.read_objects(load_variant(name).manifests).role("proxy")
    return [table.find(item.repository) for pod in pods for item in pod.containers]


def _status(system: LocalSystem, entry: Endpoint) -> int:
    try:
        return system.fetch(entry, "/1kB.bin", 5.0).status
    except OSError:
        return 0


@pytest.mark.parametrize("name", changing())
def test_it_takes_endpoints_and_routes_while_it_runs(target: LocalTarget, name: str) -> None:
    """Until it has heard of them (Traefik takes 2 s) it may ask a backend that is no more; nothing else fails."""
    variant = changed(name, lambda item: item["spec"].update(replicas=2), of="backend")
    with target.up(variant, changing=True) as system, asked(system) as client:
        until(lambda: {"backend-0", "backend-1"} <= {what for *_, what in client.rows})
        before = system.restarts()
        with system.recorder():
            system.scale("backend", 1)
            until(lambda: {what for *_, what in client.rows[-20:]} == {"backend-0"})
            route = next(copy.deepcopy(item) for item in variant.manifests if item["kind"] == "HTTPRoute")
            route["metadata"]["name"], route["spec"]["hostnames"] = "changing", ["changing.lab.test"]
            entry = system.entry().at("changing.lab.test")
            assert system.fetch(entry, "/1kB.bin", 5.0).status in (404, 503)
            system.apply([route])
            until(lambda: _status(system, entry) == 200)
        lost = [status for _, _, status, _ in client.rows if status != 200]
        assert len(lost) <= 2 if name == "caddy" else set(lost) <= {502, 503}, client.failed
        after = system.restarts()
        assert after == {name: before[name] for name in after}


@pytest.mark.parametrize("name", [*filter(lambda name: name != "caddy", telling()), "caddy-metrics"])
def test_it_counts_its_requests_and_workers(target: LocalTarget, name: str) -> None:
    """Caddy counts none unless its metrics are on. And what they say of themselves in an answer is what `migrate` tells of them."""
    with target.up(load_variant(name)) as system:
        before = system.counters()
        answers = [system.fetch(system.entry(), "/1kB.bin", 5.0) for _ in range(5)]
        assert {answer.status for answer in answers} == {200}
        after = system.counters()
        backends = system.fetch(system.backend_endpoint(), "/1kB.bin", 5.0).headers.get("server")
        assert backends and answers[0].headers.get("server") == ("envoy" if name == "envoy" else backends)
        assert answers[0].headers.get("via") == ("1.1 Caddy" if name.startswith("caddy") else None)
        if "proxy/requests" in after:  # Traefik counts none without labels, which would cost some
            assert after["proxy/requests"] - before["proxy/requests"] == 5
        assert system.gauges()["proxy/workers"] >= 1


@pytest.mark.parametrize("limit", [None, "2500m"])
@pytest.mark.parametrize("name", plain_systems("local"))
def test_as_many_workers_run_as_its_rule_makes_of_both(target: LocalTarget, name: str, limit: str | None) -> None:
    variant = load_variant(name)
    variant = variant.model_copy(update={"manifests": tuple(limited(variant, limit))})
    count = workers.count_configured(variant.manifests, len(target.cpus()["proxy"]))
    try:
        target.check_variant(variant, [make_point()])
    except NotMeasurableError:
        pytest.skip(f"{count} workers want more CPUs than the proxy has here")
    with target.up(variant) as system:
        running = system.gauges()["proxy/workers"]
        if not system.unapplied():
            assert running == count if count is not None else running > 1


@pytest.mark.parametrize("name", changing())
def test_told_to_end_it_answers_what_it_has(target: LocalTarget, name: str) -> None:
    with target.up(load_variant(name), changing=True) as system:
        sizes: list[int] = []

        def download() -> None:
            sizes.append(len(system.fetch(system.entry(), "/100MB.bin", 20.0).body))

        system.shape(400.0)
        client = threading.Thread(target=download)
        client.start()
        time.sleep(0.5)
        began = time.monotonic()
        assert system.end_pod("proxy", "delete")
        assert time.monotonic() - began < 20.0
        client.join()
        assert sizes == [PAGES["100MB.bin"]]
