"""What is told of pods meanwhile: from what the API server, kubelets and logs say, as they said it on a kind cluster."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from lab.base.errors import MeasuringError
from lab.targets.cluster import recorder as module
from lab.targets.cluster.api import DeniedError
from lab.targets.cluster.recorder import ClusterRecorder, FollowedLog, KindWatch

NS = "ingress-lab"
Object = dict[str, Any]


def pod(
    name: str = "proxy-1",
    version: int = 1,
    container: str | None = "containerd://a",
    restarts: int = 0,
    ended: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Object:
    status: Object = {"name": "proxy", "restartCount": restarts}
    if container:
        status |= {"containerID": container, "state": {"running": {"startedAt": "2026-11-21T21:53:10Z"}}}
    if ended:
        status["lastState"] = {"terminated": ended}
    labels = {"lab/role": "proxy"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": labels, **metadata},
        "spec": {"nodeName": "n", "containers": [{"name": "proxy", "readinessProbe": {"timeoutSeconds": 2}}]},
        "status": {"containerStatuses": [status]},
    }


def endpoint_slice(version: int = 1, **ready: bool) -> Object:
    endpoints = [
        {
            "addresses": [f"10.0.0.{number}"],
            "conditions": {"ready": is_ready, "terminating": not is_ready},
            "targetRef": {"kind": "Pod", "name": name.replace("_", "-")},
        }
        for number, (name, is_ready) in enumerate(ready.items())
    ]
    labels = {"kubernetes.io/service-name": "proxy"}
    metadata = {"name": "proxy-x", "uid": "slice", "resourceVersion": str(version), "labels": labels}
    return {"metadata": metadata, "endpoints": endpoints, "ports": [{"port": 80}]}


def said(told: ClusterRecorder) -> list[tuple[str, str, str, str]]:
    return [(event.role, event.object, event.kind, event.detail) for event in told.events()]


@pytest.fixture
def told() -> ClusterRecorder:
    """One that hears what a test tells it."""
    api: Any = Server([])
    return ClusterRecorder(api, NS)


def test_a_pod_that_is_deleted_and_replaced(told: ClusterRecorder) -> None:
    """In the order in which a kind cluster told it."""
    told.pod(1.0, "LISTED", pod())
    told.slice(1.0, "LISTED", endpoint_slice(proxy_1=True))
    told.pod(1.5, "MODIFIED", pod(version=1))
    told.slice(1.5, "MODIFIED", endpoint_slice(1, proxy_1=True))
    assert said(told) == [], "what was there before is no event, nor is a status that says the same again"
    ending = pod(version=2, deletionTimestamp="x", deletionGracePeriodSeconds=300)
    told.pod(2.0, "MODIFIED", ending)
    told.slice(2.1, "MODIFIED", endpoint_slice(2, proxy_1=False))
    told.pod(2.2, "ADDED", pod("proxy-2", 3, container=None))
    told.pod(3.0, "MODIFIED", pod("proxy-2", 4, container="containerd://b"))
    told.slice(4.0, "MODIFIED", endpoint_slice(5, proxy_1=False, proxy_2=True))
    told.pod(5.0, "DELETED", {**ending, "metadata": {**ending["metadata"], "resourceVersion": "6"}})
    assert said(told) == [
        ("proxy", "proxy-1", "Deleted", "grace 300 s"),
        ("proxy", "proxy-1", "NotReady", "terminating"),
        ("", "proxy", "Endpoints", "0"),
        ("proxy", "proxy-2", "Created", ""),
        ("proxy", "proxy-2", "Started", "by the API's clock 2026-11-21T21:53:10Z"),
        ("proxy", "proxy-2", "Ready", ""),
        ("", "proxy", "Endpoints", "1"),
        ("proxy", "proxy-1", "Gone", ""),
    ]


def test_a_container_that_crashed_is_started_again(told: ClusterRecorder) -> None:
    told.pod(1.0, "LISTED", pod())
    ended = {"containerID": "containerd://a", "exitCode": 137, "reason": "Error"}
    told.pod(2.0, "MODIFIED", pod(version=2, container=None, restarts=1, ended=ended))
    for version in (3, 4):
        told.pod(3.0, "MODIFIED", pod(version=version, container="containerd://b", restarts=1, ended=ended))
    happened = [(name, detail.split(";")[0]) for _, _, name, detail in said(told)]
    assert happened == [("Exited", "exited with 137 (Error)"), ("Started", "restart 1")]
    assert told.ended("containerd://a")
    assert not told.ended("containerd://b")


def test_kubernetes_own_events_are_counted_up(told: ClusterRecorder) -> None:
    told.pod(1.0, "LISTED", pod())

    def event(count: int, reason: str = "Unhealthy", about: str = "Pod") -> Object:
        words = "Readiness probe failed: HTTP probe failed with statuscode: 500"
        metadata, involved = {"uid": f"{reason}{about}"}, {"kind": about, "name": "proxy-1"}
        return {"metadata": metadata, "involvedObject": involved, "reason": reason, "message": words, "count": count}

    told.event(1.0, "LISTED", event(4))
    told.event(2.0, "MODIFIED", event(6))
    told.event(3.0, "ADDED", event(1, about="Ingress"))
    told.event(3.0, "ADDED", event(1, "Pulled"))
    told.event(4.0, "ADDED", event(1, "Killing"))
    assert [(name, detail.rpartition("; ")[2]) for _, _, name, detail in said(told)] == [
        ("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 500"),
        ("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 500"),
        ("Killing", "grace 30 s"),
    ]


class Lines:
    """A stream of so many lines, which then goes on in silence until it is closed, or `breaks`."""

    def __init__(self, *lines: bytes, breaks: bool = False) -> None:
        self._lines, self._breaks, self._closed = lines, breaks, threading.Event()

    def lines(self) -> Iterator[bytes]:
        yield from self._lines
        if self._breaks:
            raise OSError("Connection reset by peer")
        self._closed.wait(10)

    def close(self) -> None:
        self._closed.set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()


def changed(change: str, obj: Object) -> bytes:
    return json.dumps({"type": change, "object": obj}).encode()


class Server:
    """`now`: what a listing shows; a watch gives the next stream, or a silent one. `refuses`: a kind that may not be listed."""

    def __init__(self, now: list[Object], *streams: Lines, refuses: str = "") -> None:
        self.now, self._streams, self._refuses = now, list(streams), refuses
        self.since, self.opened = list[str](), list[Lines]()

    def listed(self, api_version: str, kind: str, namespace: str) -> tuple[list[Object], str]:
        if kind == self._refuses:
            raise DeniedError("context test", f"user u cannot list {kind}")
        found = self.now if kind == "Pod" else []
        return found, str(max((int(item["metadata"]["resourceVersion"]) for item in found), default=9))

    def watch(self, api_version: str, kind: str, namespace: str, since: str) -> Any:
        self.since.append(since)
        self.opened.append(self._streams.pop(0) if self._streams else Lines())
        return self.opened[-1]

    def follow(self, *_: object) -> Any:
        self.opened.append(Lines())
        self.opened[-1].close()
        return self.opened[-1]

    def log(self, *_: object, **__: object) -> str:
        return ""


def watched(server: Server, told: list[tuple[str, str]]) -> KindWatch:
    def tell(at_s: float, change: str, obj: Object) -> None:
        told.append((change, obj["metadata"]["resourceVersion"]))

    api: Any = server
    made = KindWatch(api, "v1", "Pod", NS, tell)
    made.start()
    return made


def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    """By its last resourceVersion, a bookmark's, too: nothing is told twice, nothing is missing."""
    told: list[tuple[str, str]] = []
    bookmark = changed("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
    first = Lines(changed("MODIFIED", pod(version=5)), bookmark, breaks=True)
    server = Server([pod(version=3)], first, Lines(changed("DELETED", pod(version=9))))
    watch = watched(server, told)
    server.now = []
    watch.stop()
    assert told == [("LISTED", "3"), ("MODIFIED", "5"), ("DELETED", "9")]
    assert server.since == ["3", "7"]


def test_a_watch_that_has_not_told_all_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAUGHT_UP_S", 0.1)
    server = Server([pod(version=3)], Lines())
    watch = watched(server, [])
    server.now = [pod(version=4)]
    with pytest.raises(MeasuringError, match="has not reported 1 changes"):
        watch.stop()
    expired = json.dumps({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
    watch = watched(Server([pod(version=3)], Lines(expired.encode())), [])
    with pytest.raises(MeasuringError, match="ended by the server: too old resource version"):
        watch.stop()
    monkeypatch.setattr(module, "BLIND_S", -1.0)  # what came meanwhile has no time of its own
    watch = watched(Server([], Lines()), [])
    time.sleep(0.05)
    with pytest.raises(MeasuringError, match="saw nothing for"):
        watch.stop()


def test_a_watch_that_is_ended_while_it_connects_leaves_no_stream_open() -> None:
    connecting, go_on, late = threading.Event(), threading.Event(), Lines()

    class Slow(Server):
        def watch(self, api_version: str, kind: str, namespace: str, since: str) -> Any:
            connecting.set()
            go_on.wait(60)
            return super().watch(api_version, kind, namespace, since)

    watch = watched(Slow([], late), [])
    connecting.wait(60)
    ending = threading.Thread(target=watch.end)
    ending.start()
    time.sleep(0.05)
    go_on.set()
    ending.join(60)
    assert not ending.is_alive()
    assert late.closed


def test_a_recorder_that_cannot_begin_leaves_nothing_running() -> None:
    api: Any = Server([pod()], refuses="Event")
    before = threading.active_count()
    recorder = ClusterRecorder(api, NS)
    with pytest.raises(DeniedError, match="cannot list Event"):
        recorder.__enter__()
    assert all(stream.closed for stream in api.opened)
    assert threading.active_count() == before
    assert "comes later than it was" in recorder.notes()[0]


LOG = [
    b'2026-11-21T21:53:11.900000000Z I1121 12 controller.go:193] "Configuration changes detected, backend reload required"',
    b'2026-11-21T21:53:12.541191421Z I1121 12 controller.go:213] "Backend successfully reloaded"',
    b'2026-11-21T21:53:17.244853890Z 10.244.0.4 - - "GET /1kB.bin HTTP/1.1" 200',
]


def follow(stream: Lines, *newest: bytes, whole: bool = True) -> FollowedLog:
    """`newest`: what the last line is, before following began and now."""
    left = list(newest)

    def log(*place: str, lines: int, times: bool) -> str:
        assert (lines, times) == (1, True)
        return left.pop(0).decode()

    api: Any = SimpleNamespace(follow=lambda *_: stream, log=log)
    return FollowedLog(api, NS, "proxy-1", "proxy", "c", "n", whole)


def test_a_log_is_followed_until_it_ends_and_a_new_containers_first_load_is_no_reload() -> None:
    """Lines of the second in which that began are not told again; the clock's distance is the least that a line came late."""
    followed = follow(Lines(*LOG), LOG[0], LOG[2], whole=False)
    followed.stop(ended=False)
    assert (followed.logged_events, followed.pod) == ([(pytest.approx(1795297992.541191), "Reloaded")], "proxy-1")
    assert followed.behind_s == pytest.approx(time.time() - 1795297997.244854, abs=1.0)
    broken = follow(Lines(LOG[0], breaks=True), LOG[2])
    with pytest.raises(MeasuringError, match=r"log of pod ingress-lab/proxy-1: cannot be followed: Connection reset"):
        broken.stop(ended=False)
    ended = follow(Lines(LOG[0], breaks=True))
    ended.stop(ended=True)
    assert ended.logged_events == []
    start = [b"2026-11-21T21:53:10.100000000Z " + LOG[0].partition(b" ")[2], *LOG]
    again = [b"2026-11-21T21:53:2%d.000000000Z " % n + line.partition(b" ")[2] for n, line in enumerate(LOG[:2])]
    followed = follow(Lines(*start, *again), again[1])
    followed.stop(ended=False)
    assert followed.logged_events == [
        (pytest.approx(1795298000.0), "Reload"),
        (pytest.approx(1795298001.0), "Reloaded"),
    ]
