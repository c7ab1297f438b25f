"""Real bring-ups of the real controller. These run inside the namespaces: `test_apiserver.py` starts this file there, as root and not."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.base.errors import MeasuringError
from lab.experiments.ablation.folder import copy_manifests
from lab.experiments.migration.folder import writable_lines, write_overlay_with
from lab.experiments.migration.plan import plan_migration
from lab.model.pages import PAGES
from lab.model.variants.variants import Variant, load_variant
from lab.systems import programs
from lab.targets.apiserver.target import ApiserverTarget
from lab.targets.local.sandbox import cgroups
from lab.targets.local.sandbox.namespaces import prepare
from lab.targets.local.system import LocalSystem
from lab.targets.readback import read_back
from lab.tests.support.changing_objects import ingress
from lab.tests.support.factories import make_point
from lab.tests.support.inside import answers, changed
from lab.tests.support.waiting import until

if "LAB_TEST_INSIDE" not in os.environ:
    pytest.skip("runs inside the namespaces: see test_apiserver.py", allow_module_level=True)

MORE = ingress("more.lab.test", service="backend")


@pytest.fixture(scope="session")
def target() -> Iterator[ApiserverTarget]:
    prepare()
    apiserver = ApiserverTarget()
    apiserver.check()
    yield apiserver
    apiserver.close()


@pytest.fixture(autouse=True)
def clean(target: ApiserverTarget) -> Iterator[None]:
    """Every test leaves the two servers, and nothing else: no process, no interface, no namespace, no object."""
    yield
    left = [process.name() for process in psutil.process_iter() if process.pid != os.getpid()]
    assert sorted(left) == ["etcd", "kube-apiserver"]
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in links] == ["lo"]
    assert list(Path("/run/netns").iterdir()) == [] and list(Path("/run/lab/pods").iterdir()) == []
    api = target.servers.api()
    for api_version, kind in (("v1", "Pod"), ("networking.k8s.io/v1", "Ingress"), ("coordination.k8s.io/v1", "Lease")):
        spaces = {obj["metadata"]["namespace"] for obj in api.list(api_version, kind)}
        assert not {space for space in spaces if space.startswith("ingress-lab")}, kind


def served(system: LocalSystem) -> int:
    response = system.fetch(system.entry(), "/8kB.txt", 2.0)
    assert len(response.body) == PAGES["8kB.txt"] or response.status != 200
    return response.status


def test_both_sides_serve_by_their_own_controllers_lua_and_the_control_plane_is_counted_apart(
    target: ApiserverTarget,
) -> None:
    target.check_variant(load_variant("keepalive"), [make_point()])
    with target.up(load_variant("baseline")) as left, target.up(load_variant("keepalive"), side="right") as right:
        assert (served(left), served(right)) == (200, 200)
        checks = load_variant("keepalive").readback
        assert [str(reading) for reading in read_back(right, checks) if not reading.ok] == []
        assert [reading.ok for reading in read_back(left, checks)] == [False] * len(checks)
        assert left.entry().base_url != right.entry().base_url
        assert not {*left.processes("proxy")} & {*right.processes("proxy")}
        for system in (left, right):
            shown = {pod["metadata"]["name"]: pod for pod in system.deployed()}
            assert set(shown) == {"backend-0", "proxy-0"}
            assert "ingress-nginx" in shown["proxy-0"]["status"]["containerStatuses"][0]["imageID"]
            assert all(pod["status"]["conditions"][-1]["status"] == "True" for pod in shown.values())
            assert system.gauges()["proxy/config_bytes"] > 1000
        with left.watch() as watch:
            assert served(left) == 200
        rows = watch.observation().rows
        titles = {role: set(rows.filter(rows["role"] == role)["title"]) for role in ("proxy", "control")}
        assert titles["proxy"] == {"nginx"}
        assert {"etcd", "kube-apiserver", "dumb-init", "nginx-ingress-c"} <= titles["control"]
        assert {"proxy", "control", "backend", "lab"} <= set(watch.observation().usage)
        said = left.exec("proxy", ["nginx", "-T"]).stdout
        assert "balancer_by_lua_block" in said and "init_by_lua_block" in said
        assert left.restarts() == {"proxy-0/proxy": 0, "backend-0/backend": 0}


def test_a_setting_that_ends_the_controller_is_a_fault_with_its_words(target: ApiserverTarget) -> None:
    def edit(configmap: dict[str, Any]) -> None:
        configmap["data"] = {"lua-shared-dicts": "foo"}

    with (
        pytest.raises(MeasuringError, match=r"the controller says: panic: runtime error: index out of range"),
        target.up(changed("baseline", edit, kind="ConfigMap", of="ingress-nginx-controller")),
    ):
        pass


def test_routes_that_are_added_and_endpoints_that_move_reach_the_controller(target: ApiserverTarget) -> None:
    with target.up(load_variant("baseline"), changing=True) as system:
        more = {"Host": "more.lab.test"}
        assert system.fetch(system.entry(), "/8kB.txt", 2.0, more).status == 404
        with system.recorder() as recorder:
            system.apply([MORE])
            until(lambda: system.fetch(system.entry(), "/8kB.txt", 2.0, more).status == 200)
        assert {"Reload", "Reloaded"} <= {event.kind for event in recorder.events()}
        system.end_pod("backend", "delete")
        until(lambda: [pod["metadata"]["name"] for pod in system.pods("backend")] == ["backend-1"])
        until(lambda: served(system) == 200)


def test_a_reload_of_the_controller_itself_makes_new_workers(target: ApiserverTarget) -> None:
    variant = load_variant("workers-2")
    target.check_variant(variant, [make_point("ceiling", rate_rps=None, generations=2)])
    with target.up(variant) as system:
        first, second = system.renew(), system.renew()
        assert len(first.began) >= 2 and not set(second.began) & set(first.began)
        assert set(second.ended) <= set(first.began)
        assert served(system) == 200


@pytest.mark.parametrize("name", ["traefik-ingress", "traefik-ingress-nginx"])
def test_traefik_serves_both_sides_hears_of_changes_and_ends_in_time(target: ApiserverTarget, name: str) -> None:
    logging = load_variant(f"{name}+traefik-access-log")
    more = {"Host": "more.lab.test"}
    with target.up(load_variant(name), changing=True) as left, target.up(logging, side="right") as right:
        assert (served(left), served(right)) == (200, 200)
        assert [reading.ok for side in (left, right) for reading in read_back(side, logging.readback)] == [False, True]
        assert left.gauges()["proxy/workers"] == len(target.cpus()["proxy"])
        left.apply([MORE])
        until(lambda: left.fetch(left.entry(), "/8kB.txt", 2.0, more).status == 200)
        assert right.fetch(right.entry(), "/8kB.txt", 2.0, more).status == 404
        left.end_pod("backend", "delete")
        until(lambda: left.fetch(left.entry(), "/8kB.txt", 2.0).headers.get("x-lab-backend") == "backend-1")
        left.end_pod("proxy", "delete")
        until(lambda: [pod["metadata"]["name"] for pod in left.pods("proxy")] == ["proxy-1"])
        until(lambda: answers(left))
        until(lambda: not any(pod.pod.name == "proxy-0" for pod in left.kubelet.pods))
        ends = [event.detail for event in left.log.events if (event.object, event.kind) == ("proxy-0", "Exited")]
        assert ends == ["within its grace period"]
        assert served(right) == 200


@pytest.mark.skipif(programs.find_go_program("contour") is None, reason="contour is not built: scripts/bring contour")
def test_contour_tells_its_own_envoy_on_each_side_and_is_counted_apart(target: ApiserverTarget) -> None:
    changed_one = load_variant("contour-requests-100")
    target.check_variant(changed_one, [make_point()])
    with (
        target.up(load_variant("contour")) as left,
        target.up(changed_one, changing=True, side="right") as right,
    ):
        assert (served(left), served(right)) == (200, 200)
        assert [str(reading) for reading in read_back(right, changed_one.readback) if not reading.ok] == []
        assert [reading.ok for reading in read_back(left, changed_one.readback)] == [True, False], (
            "the root's, the knob's"
        )
        assert left.gauges()["proxy/workers"] >= 1
        before = left.counters()["proxy/requests"]
        with left.watch() as watch:
            assert served(left) == 200
        assert left.counters()["proxy/requests"] == before + 1
        rows = watch.observation().rows
        titles = {role: set(rows.filter(rows["role"] == role)["title"]) for role in ("proxy", "control")}
        assert "envoy" in titles["proxy"] and "contour" not in titles["proxy"]
        assert {"etcd", "kube-apiserver", "contour"} <= titles["control"]
        right.end_pod("backend", "delete")
        until(lambda: served(right) == 200)
        assert right.end_pod("proxy", "delete")  # by itself, once no connection is open
        until(lambda: bool(right.pods("proxy")))


@pytest.mark.skipif(programs.find_go_program("contour") is None, reason="contour is not built: scripts/bring contour")
def test_what_migrate_writes_for_contour_is_read_back_from_its_envoy(target: ApiserverTarget, tmp_path: Path) -> None:
    """Its annotations too, which the controller passes over where it does not know them."""
    (found,) = plan_migration("mine", b"keep-alive: '300'\n", to=["contour"]).migrations
    copy_manifests(tmp_path / "manifests")
    yours = load_variant(
        write_overlay_with(tmp_path / "manifests", found, writable_lines(found)), tmp_path / "manifests"
    )

    def unset(variant: Variant) -> set[str | None]:
        with target.up(variant) as system:
            assert "server" not in system.fetch(system.entry(), "/1kB.bin", 5.0).headers
            return {reading.check.name for reading in read_back(system, yours.readback) if not reading.ok}

    assert len(yours.readback) > 5 and unset(yours) == set()
    (ingress,) = [each for each in yours.manifests if each["kind"] == "Ingress"]
    notes = ingress["metadata"]["annotations"]
    spoilt = {
        **ingress,
        "metadata": {**ingress["metadata"], "annotations": {f"{name}s": notes[name] for name in notes}},
    }
    others = [each for each in yours.manifests if each is not ingress]
    assert unset(yours.model_copy(update={"manifests": (*others, spoilt)})) == {
        "route.route.timeout",
        "route.route.upgrade_configs.0.upgrade_type",
    }


@pytest.mark.skipif(not cgroups.try_limits()[0], reason="no cgroup that this user may write")
def test_auto_follows_a_limit_of_cpu_and_the_limit_is_read_back(target: ApiserverTarget) -> None:
    variant = load_variant("ingress-nginx+proxy-cpu-300m")
    with target.up(variant) as system:
        assert [str(reading) for reading in read_back(system, variant.readback) if not reading.ok] == []
        assert system.unapplied() == []


def test_an_ingress_that_traefik_skips_is_a_fault_with_its_words(
    target: ApiserverTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit(ingress: dict[str, Any]) -> None:
        prefix = "nginx.ingress.kubernetes.io"
        ingress["metadata"]["annotations"] = {f"{prefix}/auth-type": "basic", f"{prefix}/auth-secret": "none"}

    def ends_once_it_is_said(system: LocalSystem, deadline: float) -> None:
        until(lambda: words in str(system.routing.explained(MeasuringError("", ""))), system.log_tail)
        wait(system, time.monotonic())

    words, wait = "the controller says: Cannot resolve auth secret", LocalSystem.wait
    monkeypatch.setattr(LocalSystem, "wait", ends_once_it_is_said)
    skipped = changed("traefik-ingress-nginx", edit, kind="Ingress", of="bench")
    with pytest.raises(MeasuringError, match=words), target.up(skipped):
        pass
