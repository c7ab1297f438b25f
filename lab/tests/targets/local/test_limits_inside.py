"""Limits, affinities, environments and replicas on real bring-ups. Started inside the namespaces by `test_local.py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.model.variants.variants import Check, Variant
from lab.targets.local.sandbox import cgroups
from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget
from lab.targets.readback import Reading, read_back
from lab.tests.support.factories import make_point
from lab.tests.support.inside import changed, pod_of
from lab.tests.support.waiting import until

LIMITS, WHY_NOT = cgroups.try_limits()
limited = pytest.mark.skipif(not LIMITS, reason=f"no limits here: {WHY_NOT}")


def container_with(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda deployment: pod_of(deployment)["containers"][0].update(fields)


def limits(**asked: str) -> Callable[[dict[str, Any]], None]:
    return container_with(resources={"limits": asked})


def reading(system: LocalSystem, **check: Any) -> Reading:
    (found,) = read_back(system, [Check(**check)])
    return found


def groups_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


def folders() -> list[str]:
    """Every folder of limits that this lab has anywhere."""
    return [
        name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names if name.startswith(cgroups.make_label())
    ]


@limited
def test_every_process_of_a_container_is_inside_its_limits_and_they_read_back(target: LocalTarget) -> None:
    with target.up(changed("baseline", limits(cpu="200m", memory="64Mi"), of="backend")) as system:
        assert system.unapplied() == []
        pids = system.processes("backend")
        assert len(pids) == 2 and all("backend-0-backend" in groups_of(pid) for pid in pids)
        assert not any("lab-" in groups_of(pid) for pid in system.processes("proxy"))
        assert reading(system, kind="quota", role="backend", name="cpu", value="0.2").ok
        assert reading(system, kind="quota", role="backend", name="memory", value="64Mi").ok
        assert not reading(system, kind="quota", role="proxy", name="cpu", value="200m").ok
        assert {"backend/cpu_throttled_us", "backend/memory_limit_hits"} <= system.counters().keys()
    assert folders() == []


@limited
def test_a_proxy_that_runs_out_of_memory_is_said_to_have_done_so(target: LocalTarget) -> None:
    script = (
        "nginx -e stderr -c /srv/conf/nginx.conf -g 'daemon off;' & "
        "while [ ! -e /srv/run/eat ]; do sleep 0.05; done; exec tail /dev/zero"
    )
    eating = container_with(command=["sh", "-c", script], resources={"limits": {"memory": "64Mi"}})
    with target.up(changed("nginx", eating)) as system:
        assert reading(system, kind="quota", name="memory", value="64Mi").ok
        assert system.exec("proxy", ["touch", "/srv/run/eat"]).returncode == 0
        until(lambda: set(system.restarts().values()) == {0, 1})
        assert "out of memory: the kernel ended processes of it at the limit of 64Mi" in system.log_tail()
        said = [event.detail for event in system.log.events if event.kind == "Exited"]
        assert said[0].startswith("ended by signal 9, out of memory")
        assert system.counters()["proxy/memory_limit_hits"] > 0


def replicas(number: int) -> Variant:
    return changed("nds-replicas-3", lambda item: item["spec"].update(replicas=number), of="backend")


@pytest.mark.parametrize("number", [3, 2])
def test_the_pods_that_are_ready_are_counted_and_all_of_them_serve(target: LocalTarget, number: int) -> None:
    variant = replicas(number)
    with target.up(variant) as system:
        (seen,) = read_back(system, variant.readback)
        assert (seen.observed, seen.ok) == (str(number), number == 3)
        entry = system.endpoint(make_point())
        served = {system.fetch(entry, "/1kB.bin", 2.0).headers["x-lab-backend"] for _ in range(4 * number)}
        assert served == {f"backend-{pod}" for pod in range(number)}
        for pid in system.processes("backend"):
            assert os.sched_getaffinity(pid) <= target.cpus()["backend"]
        system.kubelet.end(next(pod for pod in system.kubelet.pods if pod.pod.name == "backend-1"))
        assert reading(system, kind="pods", role="backend", value="3").observed == str(number - 1)
