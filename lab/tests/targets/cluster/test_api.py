"""The API server as the lab asks it: paths, deadlines, and every fault in words. The server is a stub on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.base.errors import LostError, UsageError
from lab.targets.cluster import connection
from lab.targets.cluster.api import Api, ConflictError, DeniedError, RefusedError

CORE = {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True}, {"name": "pods", "kind": "Pod", "namespaced": True}, {"name": "pods/log", "kind": "Pod", "namespaced": True}, {"name": "nodes", "kind": "Node", "namespaced": False}]}  # fmt: skip
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}}


class Stub(ThreadingHTTPServer):
    """`answers`: what each next request for a path gets, the last one again and again; `seen`: what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, list[tuple[int, Any]]] = {"/api/v1": [(200, CORE)]}
        self.seen: list[tuple[str, str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        assert isinstance(self.server, Stub)
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        self.server.seen.append((self.command, self.path, json.loads(body) if body else None))
        left = self.server.answers.get(self.path.partition("?")[0], [(404, {"message": "not found"})])
        status, answer = left[0] if len(left) == 1 else left.pop(0)
        said = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  # names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
        pass


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


def kubeconfig(tmp_path: Path, url: str, **user: Any) -> Path:
    """Without a current context: the lab never uses it."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def api(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr(connection, "BLIP_S", 0.5)
    return Api("test", kubeconfig(tmp_path, f"http://127.0.0.1:{stub.server_port}"))


def status(code: int, message: str) -> tuple[int, Any]:
    return code, {"kind": "Status", "message": message}


def test_a_kubeconfig_without_the_context_is_refused(tmp_path: Path) -> None:
    for content, said in (
        (None, "context test: "),
        ("", "context test: "),
        ("a: [", "context test: "),
        ("clusters: 3", "context test: "),
        (
            "contexts: [{name: tset, context: {cluster: c, user: u}}]",
            r"context test: is not in .*\n  did you mean 'tset'",
        ),
    ):
        path = tmp_path / "config"
        if content is not None:
            path.write_text(content)
        with pytest.raises(UsageError, match=said):
            Api("test", path)


def test_a_credential_plugin_that_fails_is_quoted_quietly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = {"command": "sh", "args": ["-c", "echo expired >&2; exit 1"]}
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", **command}
    with pytest.raises(UsageError, match="no credentials: exec: process returned 1. expired"):
        Api("test", kubeconfig(tmp_path, "http://127.0.0.1:1", exec=plugin))
    assert capfd.readouterr().err == ""


def test_objects_are_asked_for_and_deleted_by_kind_and_the_server_says_where_they_are(api: Api, stub: Stub) -> None:
    stub.answers["/api/v1/namespaces/n/configmaps/a"] = [(200, CONFIG_MAP)]
    assert api.get("v1", "ConfigMap", "a", "n") == CONFIG_MAP
    assert api.get("v1", "ConfigMap", "b", "n") is None
    assert api.get("route.openshift.io/v1", "Route", "b", "n") is None
    assert [path for _, path, _ in stub.seen].count("/api/v1") == 1
    api.apply(CONFIG_MAP)
    method, path, body = stub.seen[-1]
    assert method == "PATCH" and body == CONFIG_MAP
    assert path.endswith("?fieldManager=ingress-lab&force=true&fieldValidation=Strict")
    stub.answers["/api/v1/pods"] = [(200, {"items": [{"metadata": {"name": "p"}}]})]
    assert api.list("v1", "Pod", labels="lab/run") == [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]
    assert stub.seen[-1][1] == "/api/v1/pods?labelSelector=lab%2Frun"
    assert api.list("route.openshift.io/v1", "Route") == []
    stub.answers["/api/v1/namespaces/n/pods/p/log"] = [status(400, "waiting to start"), (200, "a\nb\n")]
    assert api.log("n", "p", "c", 5) == "" and api.log("n", "p", "c", 5) == "a\nb\n"
    route = {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": "r", "namespace": "n"}}
    with pytest.raises(RefusedError, match=r"knows no Route of route.openshift.io/v1\n  install its Custom"):
        api.apply(route)
    assert api.delete("v1", "Pod", "p", "n", grace_s=1)
    assert stub.seen[-1][2]["gracePeriodSeconds"] == 1 and stub.seen[-1][2]["propagationPolicy"] == "Background"
    stub.answers["/api/v1/namespaces/n/pods/p"] = [(200, {"kind": "Pod"})]
    assert not api.delete("v1", "Pod", "p", "n", orphan=True)
    assert stub.seen[-1][2]["propagationPolicy"] == "Orphan"


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (
            status(403, 'configmaps "a" is forbidden: User "ann" cannot patch resource "configmaps" in API group "" in the namespace "n"'),
            DeniedError,
            'user ann cannot patch resource "configmaps"',
        ),
        (status(403, "exceeded quota: q"), RefusedError, r"PATCH refused \(403\): exceeded quota: q"),
        (status(401, "Unauthorized"), DeniedError, "does not know you"),
        (status(409, "already exists"), ConflictError, "already exists"),
        (status(422, "spec.x: Invalid value"), RefusedError, r"context test: ConfigMap n/a: .*spec.x: Invalid value"),
        (
            status(500, "failed to create typed patch object: .spec.clusterP: field not declared in schema"),
            UsageError,
            r"refused \(500\): .*clusterP: field not declared",
        ),
        (status(400, 'strict decoding error: unknown field "spec.x"'), UsageError, r"\(400\): .*unknown field"),
        ((500, "<html>broken"), RefusedError, r"\(500\): <html>broken"),
    ],
)  # fmt: skip
def test_what_the_server_refuses_is_an_error_with_its_words(
    api: Api, stub: Stub, answer: tuple[int, Any], kind: type[Exception], said: str
) -> None:
    stub.answers["/api/v1/namespaces/n/configmaps/a"] = [answer]
    with pytest.raises(kind, match=said):
        api.apply(CONFIG_MAP)


def test_an_old_token_is_renewed_a_blip_ridden_out_and_a_server_that_stays_away_is_lost(api: Api, stub: Stub) -> None:
    before = api.client
    stub.answers["/version"] = [(401, {"message": "expired"}), (200, {"gitVersion": "v1.34.4"})]
    assert api.version() == "v1.34.4"
    assert api.client is not before
    stub.answers["/version"] = [(503, "etcd"), (429, "later"), (200, {"gitVersion": "v1.34.4"})]
    assert api.version() == "v1.34.4"
    stub.answers["/version"] = [(503, "etcd")]
    with pytest.raises(LostError, match="does not do it now: 127.0.0.1:.*status 503: etcd"):
        api.version()


def test_a_server_that_is_not_there_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BLIP_S", 0.2)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # never for this machine itself
    with pytest.raises(LostError, match="does not answer: 127.0.0.1:1: Connection refused"):
        Api("test", kubeconfig(tmp_path, "http://127.0.0.1:1")).version()
