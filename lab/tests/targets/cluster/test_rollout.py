"""Is it ready, and if not, why: what is said of pods as a real kubelet (1.34) described them. Asks no cluster."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from lab.base.errors import ImageError, MeasuringError, NodeRefusesError, StartError
from lab.targets.cluster import rollout
from lab.targets.cluster.api import RUN_LABEL, Api
from lab.tests.support.cluster_fakes import FakeApi

Object = dict[str, Any]
LABEL = {RUN_LABEL: "r"}
DEPLOYMENT: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "proxy", "namespace": "n"}}
ROUTE: Object = {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": "a", "namespace": "n"}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "POLL_S", 0.01)
    monkeypatch.setattr(rollout, "ROUTES_POLL_S", 0.01)
    monkeypatch.setattr(rollout, "PATIENCE_S", 0.1)


def deployment(ready: int, wanted: int = 1, **status: Any) -> Object:
    counts = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": ready, "observedGeneration": 1}
    metadata = DEPLOYMENT["metadata"] | {"generation": 1, "uid": "d"}
    return {**DEPLOYMENT, "metadata": metadata, "spec": {"replicas": wanted}, "status": counts | status}


def pod(state: Object | None = None, name: str = "proxy-abc", init: Object | None = None, **status: Any) -> Object:
    containers = [] if state is None else [{"name": "proxy", "ready": False, "restartCount": 0} | state]
    inits = [] if init is None else [{"name": "sysctl", "ready": False, "restartCount": 0} | init]
    metadata = {"name": name, "namespace": "n", "labels": LABEL, "uid": "p"}
    told = {"phase": "Pending", "initContainerStatuses": inits, "containerStatuses": containers} | status
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": told}


def waiting(reason: str, message: str = "", **more: Any) -> Object:
    return {"state": {"waiting": {"reason": reason} | ({"message": message} if message else {})}} | more


def exited(code: int, reason: str = "Error") -> Object:
    return {"terminated": {"exitCode": code, "reason": reason}}


def fails(*there: Object, limit_s: float = 120.0, fake: FakeApi | None = None) -> MeasuringError:
    """The error, which must not have taken the whole limit."""
    fake = fake or FakeApi()
    for obj in there:
        fake.put(obj)
    applied = [obj for obj in (DEPLOYMENT, ROUTE) if any(obj["kind"] == item["kind"] for item in there)]
    started = time.monotonic()
    with pytest.raises(MeasuringError) as raised:
        rollout.wait_until_ready(cast("Api", fake), applied, started + limit_s)
    assert time.monotonic() - started < 30.0
    return raised.value


def test_one_that_is_not_looked_at_or_has_old_or_unready_pods_is_not() -> None:
    for status in ({"observedGeneration": 0}, {"replicas": 3}, {"updatedReplicas": 1}, {"readyReplicas": 1}):
        error = fails(deployment(2, 2, **status), limit_s=0.05)
        assert "deployment n/proxy: not in time: " in str(error)


def test_what_does_not_come_right_by_itself_fails_at_once() -> None:
    for state, said, remedy in (
        (waiting("ImagePullBackOff", "Back-off"), "ImagePullBackOff: Back-off", "LAB_IMAGES"),
        (waiting("CreateContainerConfigError", 'configmap "x" not found'), 'configmap "x" not found', "manifests"),
        (
            waiting("CrashLoopBackOff", "back-off", restartCount=2, lastState=exited(137, "OOMKilled")),
            "CrashLoopBackOff: back-off (before: exited with 137 (OOMKilled))",
            "its log says why",
        ),
    ):
        error = fails(deployment(0), pod(state))
        assert error.place == "context test: pod n/proxy-abc"
        assert error.fault.startswith("not ready: container proxy: ") and said in error.fault and remedy in error.remedy


def test_a_container_may_crash_twice_and_a_pod_that_is_being_deleted_does_not_count() -> None:
    """It may only have been faster than what it needs, or the container runtime too busy to start it."""
    for reason in ("CrashLoopBackOff", "RunContainerError"):
        for restarts, final in ((0, False), (1, False), (2, True)):
            fault = rollout.find_pod_fault(pod(waiting(reason, restartCount=restarts)))
            assert fault is not None and fault.final is final
    ending = pod(waiting("ImagePullBackOff"))
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert rollout.find_pod_fault(ending) is None


def test_a_fault_is_told_of_whose_it_is() -> None:
    message = 'Pod was rejected: forbidden sysctl: "net.core.rmem_max" not allowlisted'
    error = fails(deployment(0), pod(phase="Failed", reason="SysctlForbidden", message=message))
    assert error.fault == f"SysctlForbidden: {message}" and "allowedUnsafeSysctls" in error.remedy
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}
    started = time.monotonic()
    error = fails(deployment(0), pod(conditions=[condition]))
    assert time.monotonic() - started >= 0.1
    assert error.fault == "not scheduled: Unschedulable: Insufficient cpu"
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    error = fails(deployment(0, conditions=[condition]))
    assert error.place.endswith("deployment n/proxy") and error.fault == "FailedCreate: exceeded quota"
    error = fails(deployment(0), pod(waiting("PodInitializing"), init={"state": exited(1)}), limit_s=0.05)
    assert error.fault == "not in time: not ready: init container sysctl: exited with 1 (Error)"
    for obj, place in ((DEPLOYMENT, "deployment n/proxy"), (ROUTE, "route n/a")):
        with pytest.raises(MeasuringError, match=f"{place}: is gone"):
            rollout.wait_until_ready(cast("Api", FakeApi()), [obj], time.monotonic() + 5)


def test_a_failing_probe_is_said_at_the_deadline_with_its_events_and_the_log() -> None:
    fake = FakeApi()
    for number, (uid, reason) in enumerate([("other", "Foreign"), ("p", "Started"), ("p", "Unhealthy")]):
        said = {"reason": reason, "message": "connection\nrefused", "lastTimestamp": f"2026-01-01T00:00:0{number}Z"}
        about = {"metadata": {"name": f"e{number}", "namespace": "n"}, "involvedObject": {"uid": uid}}
        fake.put({"kind": "Event", "count": number + 1, **about, **said})
    fake.logs["proxy"] = "first\nsecond\n"
    error = fails(deployment(0), pod({"state": {"running": {}}}), limit_s=0.05, fake=fake)
    assert error.fault == "not in time: not ready: container proxy: running, not ready"
    assert error.remedy.splitlines() == [
        "its readiness or startup probe does not succeed",
        "  event Started (2×): connection refused",
        "  event Unhealthy (3×): connection refused",
        "  log of proxy: first",
        "  log of proxy: second",
    ]


def route(name: str = "a", **condition: Any) -> Object:
    said = [{"conditions": [{"type": "Admitted"} | condition]}] if condition else []
    return {**ROUTE, "metadata": ROUTE["metadata"] | {"name": name, "labels": LABEL}, "status": {"ingress": said}}


def test_routes_are_waited_for_until_they_are_admitted() -> None:
    fake = FakeApi()
    fake.put(route(status="True"))
    rollout.wait_until_ready(cast("Api", fake), [ROUTE], time.monotonic() + 1)
    error = fails(route(), limit_s=0.05)
    assert error.place.endswith("route n/a") and "not admitted yet: no router has said anything" in error.fault
    error = fails(route(status="False", reason="HostAlreadyClaimed", message="by n/b"))
    assert error.fault == "not admitted: HostAlreadyClaimed: by n/b"


_DEPLOYMENT = {"name": "proxy", "patch": {"value": {"spec": {"template": {"metadata": {}, "spec": {}}}}}}
ENVOY: Object = {
    "apiVersion": "gateway.envoyproxy.io/v1alpha1",
    "kind": "EnvoyProxy",
    "metadata": {"name": "proxy", "namespace": "n"},
    "spec": {"provider": {"kubernetes": {"envoyDeployment": _DEPLOYMENT}}},
}


def test_what_a_controller_makes_is_waited_for_or_refused_in_its_gateways_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeApi()
    with pytest.raises(MeasuringError, match="deployment n/proxy: not in time: its controller has not made it"):
        rollout.wait_until_ready(cast("Api", fake), [ENVOY], time.monotonic() + 0.1)
    fake.put(deployment(2, 2))
    rollout.wait_until_ready(cast("Api", fake), [ENVOY], time.monotonic() + 1)
    monkeypatch.setattr(rollout, "MAKING_S", 0.1)
    fake = FakeApi()
    refused = {"type": "Accepted", "status": "False", "reason": "InvalidParameters", "message": "no such field"}
    gateway = {"apiVersion": "g/v1", "kind": "Gateway", "metadata": {"name": "proxy", "namespace": "n"}}
    fake.put({**gateway, "status": {"conditions": [refused]}})
    with pytest.raises(StartError, match="has not made it; InvalidParameters: no such field"):
        rollout.wait_until_ready(cast("Api", fake), [ENVOY], time.monotonic() + 5)


def test_a_controller_has_its_time_from_when_it_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "MAKING_S", 0.3)
    controller = {**deployment(0), "metadata": {"name": "controller", "namespace": "n", "generation": 1}}
    began = time.monotonic()

    class Slow(FakeApi):
        def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
            passed_s = time.monotonic() - began
            if passed_s > 0.5:
                self.put({**controller, "status": deployment(1)["status"]})
            if passed_s > 0.6:
                self.put(deployment(1))
            return super().get(api_version, kind, name, namespace)

    fake = Slow()
    fake.put(controller)
    rollout.wait_until_ready(cast("Api", fake), [ENVOY, controller], began + 60)
    assert time.monotonic() - began > 0.6


REFUSED = f"cannot create /proc/sys/a: Permission denied\ntune.sh: a: {rollout.NODE_REFUSES}\n"


@pytest.mark.parametrize(
    ("log", "kind", "said"),
    [
        ({"proxy": "starting\nno such field: a\n"}, StartError, "log of proxy: no such field: a"),
        ({"proxy/previous": "nginx: [emerg] bad"}, StartError, "log of proxy: nginx: [emerg] bad"),
        ({"proxy": REFUSED}, NodeRefusesError, "proxy: cannot create /proc/sys/a: Permission denied; proxy: tune.sh: a: refused by the node"),
    ],
)  # fmt: skip
def test_a_program_that_ends_is_told_with_last_words(log: dict[str, str], kind: type[StartError], said: str) -> None:
    fake = FakeApi()
    fake.logs = log
    error = fails(deployment(0), pod(waiting("CrashLoopBackOff", restartCount=2)), fake=fake)
    assert type(error) is kind and error.fault.endswith(said)
    error = fails(deployment(0), pod(waiting("ErrImagePull", "no such host", image="example.org/a:1")))
    assert isinstance(error, ImageError) and error.image == "example.org/a:1"
