"""What disturbances do on a cluster, and refuse, against an API server in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pytest

from lab.base.errors import LostError, MeasuringError, UsageError
from lab.targets.cluster import changes as module
from lab.targets.cluster.api import RUN_LABEL, DeniedError, RefusedError
from lab.targets.cluster.changes import RESTARTED, Changes
from lab.targets.cluster.client import measure_clock_offset
from lab.targets.cluster.objects import Reference
from lab.tests.support.cluster_fakes import FakeApi

NS = "ingress-lab"
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "proxy", "namespace": NS, "labels": {"app.kubernetes.io/part-of": "ingress-lab"}},
    "spec": {
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"lab/role": "proxy"}},
            "spec": {"containers": [{"name": "proxy", "resources": {"requests": {"cpu": "100m"}}}]},
        },
    },
}
ROUTE = {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": "changing"}, "spec": {}}


def pod(name: str, ready: bool = True, made: str = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    labels = {"lab/role": "proxy"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NS, "labels": labels, "creationTimestamp": made, **more},
        "spec": {"nodeName": "n", "containers": [{"name": "proxy"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [
                {"name": "proxy", "containerID": f"containerd://{64 * 'a'}", "state": {"running": {}}}
            ],
        },
    }


def crashed(obj: dict[str, Any]) -> dict[str, Any]:
    """The same pod between two of its containers."""
    statuses = [{"name": "proxy", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    return {**obj, "status": {**obj["status"], "containerStatuses": statuses}}


class Cluster(FakeApi):
    """`refusal`: what a budget says of evictions. A resize takes at once, unless `pending` says why not."""

    refusal: str | None = None
    gone: bool = False
    """Its pods are, by the time that they are asked to change."""
    pending: dict[str, str] | None = None

    def evict(self, namespace: str, pod: str) -> str | None:
        self._ask("evict", ("Pod", namespace, pod))
        return self.refusal

    def change(
        self, api_version: str, kind: str, name: str, namespace: str, body: dict[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        if self.gone:
            raise RefusedError("context test: Pod", "PATCH refused (404): not found", "")
        changed = super().change(api_version, kind, name, namespace, body, subresource)
        if subresource == "resize":
            (container,) = changed["spec"]["containers"]
            (status,) = changed["status"]["containerStatuses"]
            if "running" not in status["state"]:
                pass  # nobody is there to be given more or less
            elif self.pending is None:
                status["resources"] = container["resources"]
            else:
                changed["status"]["conditions"].append({"type": "PodResizePending", "status": "True", **self.pending})
            self.put(changed)
        return changed


@dataclass
class Made:
    """`added`: to the inventory. `changes` of these manifests."""

    api: Cluster = field(default_factory=Cluster)
    added: list[set[Reference]] = field(default_factory=list[set[Reference]])
    said: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    manifests: Sequence[dict[str, Any]] = (DEPLOYMENT,)

    def add(self, refs: Collection[Reference]) -> None:
        self.added.append(set(refs))

    def named(self, name: str) -> str:
        return name

    def say(self, *said: str) -> None:
        self.said.append(said)

    @cached_property
    def changes(self) -> Changes:
        server: Any = self.api
        rest: Any = self
        made = Changes(server, rest, rest, self.manifests, NS, "run-1")
        made._recorder = rest  # pyright: ignore[reportPrivateUsage]
        return made


@pytest.fixture
def made() -> Made:
    made = Made()
    made.api.put(DEPLOYMENT)
    made.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}})
    return made


def test_the_first_pod_is_the_oldest_that_is_ready(made: Made) -> None:
    made.api.put(pod("a", made="2026-01-01T00:00:00Z", deletionTimestamp="2026-01-01T00:01:00Z"))
    made.api.put(pod("b", ready=False, made="2026-01-01T00:00:01Z"))
    made.api.put(pod("c", made="2026-01-01T00:00:03Z"))
    made.api.put(pod("d", made="2026-01-01T00:00:02Z"))
    assert made.changes.first("proxy")["metadata"]["name"] == "d"
    del made.api.objects["Pod", NS, "c"], made.api.objects["Pod", NS, "d"]
    assert made.changes.first("proxy")["metadata"]["name"] == "b"
    del made.api.objects["Pod", NS, "b"]
    with pytest.raises(MeasuringError, match="no pod is there"):
        made.changes.first("proxy")


def test_a_pod_is_deleted_with_its_own_grace_or_evicted_where_no_budget_refuses(made: Made) -> None:
    made.api.put(pod("a"))
    made.api.refusal = "The disruption budget proxy needs 1 healthy pods and has 1 currently"
    assert not made.changes.end_pod("proxy", "evict")
    assert made.said == [("EvictionRefused", "a", made.api.refusal)]
    made.api.refusal = None
    assert made.changes.end_pod("proxy", "evict")
    assert len(made.said) == 1
    assert made.changes.end_pod("proxy", "delete")
    assert made.api.asked[2:] == ["delete Pod ingress-lab/a"]


def test_a_deployment_is_scaled_and_rolled(made: Made) -> None:
    made.changes.scale("proxy", 3)
    made.changes.roll("proxy")
    now = made.api.objects["Deployment", NS, "proxy"]
    first = now["spec"]["template"]["metadata"]["annotations"][RESTARTED]
    made.changes.roll("proxy")
    second = made.api.objects["Deployment", NS, "proxy"]["spec"]["template"]["metadata"]["annotations"][RESTARTED]
    assert now["spec"]["replicas"] == 3
    assert first != second
    with pytest.raises(UsageError, match="role backend: nothing makes its pods"):
        made.changes.scale("backend", 2)


def test_a_squeeze_keeps_requests_below_limits_and_is_undone_by_the_nodes_cpus(made: Made) -> None:
    """For every pod, also one that starved until it was unready or crashed; one that is ending is left alone."""
    ending = pod("ending", deletionTimestamp="2026-01-01T00:01:00Z")
    for obj in (pod("a"), pod("unready", ready=False), crashed(pod("crashed", ready=False)), ending):
        made.api.put(obj)
    made.changes.squeeze("proxy", "20m")
    assert resources(made, "a") == {"limits": {"cpu": "20m"}, "requests": {"cpu": "20m"}}
    made.changes.squeeze("proxy", None)
    for name in ("a", "unready", "crashed"):
        assert resources(made, name) == {"limits": {"cpu": "2"}, "requests": {"cpu": "100m"}}
        assert made.api.asked.count(f"change(resize) Pod ingress-lab/{name}") == 2
    assert "ending" not in " ".join(made.api.asked)


def test_what_a_controller_adds_to_its_deployment_is_what_a_squeeze_goes_back_to(made: Made) -> None:
    patch = {"template": {"metadata": {"labels": {"lab/role": "proxy"}}, "spec": {"containers": [{"name": "proxy"}]}}}
    deployed = {"name": DEPLOYMENT["metadata"]["name"], "patch": {"value": {"spec": patch}}}
    envoy = {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyProxy",
        "metadata": {"name": "proxy", "namespace": NS},
        "spec": {"provider": {"kubernetes": {"envoyDeployment": deployed}}},
    }
    changes = Made(made.api, manifests=[envoy]).changes
    made.api.put(pod("a"))
    changes.squeeze("proxy", "20m")
    changes.squeeze("proxy", None)
    assert resources(made, "a") == {"limits": {"cpu": "2"}, "requests": {"cpu": "100m"}}


def resources(made: Made, name: str) -> dict[str, Any]:
    return made.api.objects["Pod", NS, name]["spec"]["containers"][0]["resources"]


def test_undoing_a_squeeze_fails_only_with_the_cluster_or_a_right(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESIZED_S", 0.05)
    made.changes.squeeze("proxy", None)
    with pytest.raises(MeasuringError, match="no pod is there to be squeezed"):
        made.changes.squeeze("proxy", "20m")
    made.api.put(pod("a"))
    made.api.pending = {"reason": "Deferred"}
    made.changes.squeeze("proxy", None)
    made.api.gone = True
    made.changes.squeeze("proxy", None)

    def denied(verb: str, key: object) -> None:
        raise DeniedError("context test", "user u cannot patch pods/resize")

    made.api.gone, made.api.before = False, denied
    with pytest.raises(LostError, match="ask for this right"):
        made.changes.squeeze("proxy", None)


@pytest.mark.parametrize("statuses", [None, [{"name": "proxy", "containerID": ""}], [{"name": "other"}]])
def test_no_process_is_killed_by_an_id_that_is_none(made: Made, statuses: object) -> None:
    """An empty one would be found in every cgroup of the node."""
    obj = pod("a")
    obj["status"]["containerStatuses"] = statuses
    made.api.put(obj)
    with pytest.raises(MeasuringError, match="container proxy cannot be killed: none runs"):
        made.changes.end_pod("proxy", "crash")
    assert made.api.asked == []


def test_what_still_ends_is_killed_from_inside_before_its_node(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KILLED_S", 0.0)
    killed, crashes = list[str](), list[str]()

    def crash(api: object, image: str, obj: dict[str, Any], run: str) -> None:
        crashes.append(obj["metadata"]["name"])
        raise MeasuringError("pod", "is not killed", "")

    def kill(obj: dict[str, Any]) -> None:
        name = obj["metadata"]["name"]
        killed.append(name)
        if name == "stubborn":
            raise MeasuringError("pod", "has no shell", "")
        made.api.put(crashed(obj))

    monkeypatch.setattr(module, "crash_container", crash)
    for name, grace_s in (("quick", 1), ("willing", 3600), ("stubborn", 3600)):
        made.api.put(pod(name, uid=name, deletionTimestamp="x", deletionGracePeriodSeconds=grace_s))
    made.api.put(pod("serving", uid="serving"))
    made.changes.settle(kill)
    assert (killed, crashes) == (["willing", "stubborn"], ["stubborn"])

    def lose(obj: object) -> None:
        raise LostError("context test", "does not answer", "")

    with pytest.raises(LostError):
        made.changes.settle(lose)


@pytest.mark.parametrize(("reason", "limit_s"), [("Infeasible", 60.0), ("Deferred", 0.05)])
def test_a_resize_may_not_take(made: Made, reason: str, limit_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESIZED_S", limit_s)
    made.api.put(pod("a"))
    made.api.pending = {"reason": reason, "message": "node has not enough cpu"}
    with pytest.raises(MeasuringError, match=rf"its CPU limit is not 20m: {reason}: node has not enough cpu"):
        made.changes.squeeze("proxy", "20m")


def test_what_is_applied_is_listed_once_labelled_and_in_order(made: Made) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "changing"}, "spec": {}}
    made.changes.apply([ROUTE, service])
    made.changes.apply([{**ROUTE, "spec": {"path": "/2"}}])
    route = "apply Route ingress-lab/changing"
    assert made.api.asked == ["apply Service ingress-lab/changing", route, route]
    found = made.api.objects["Route", NS, "changing"]
    assert found["spec"] == {"path": "/2"}
    assert found["metadata"]["labels"] == {"app.kubernetes.io/part-of": "ingress-lab", RUN_LABEL: "run-1"}
    kinds = (("route.openshift.io/v1", "Route"), ("v1", "Service"))
    assert made.added == [{Reference(version, kind, NS, "changing") for version, kind in kinds}]


def shell(*answers: str) -> Any:
    """Answers in turn; the last again and again."""
    left = list(answers)

    def script(text: str) -> SimpleNamespace:
        return SimpleNamespace(stdout=left[0] if len(left) == 1 else left.pop(0))

    return SimpleNamespace(place="pod client/generator", script=script)


def test_a_clocks_offset_is_told_by_the_shortest_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round trips of 40 and 10 ms, an hour apart: the middle of the shorter one, half of it as error; never without fractions."""
    here = iter([1000.0, 1000.04, 1001.0, 1001.01])
    with pytest.raises(MeasuringError, match="does not print its time"):
        measure_clock_offset(shell("4600.%N\n"))
    monkeypatch.setattr("lab.targets.cluster.client.time.time", lambda: next(here))
    found = measure_clock_offset(shell("4600.0\n", "4601.1\n"), tries=2)
    assert found.offset_s == pytest.approx(3600.095)
    assert found.error_s == pytest.approx(0.005)
