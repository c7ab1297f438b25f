"""Read-back kinds by real requests, of pods and of the router, against systems that answer as told: right, wrong, garbled and silent."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from lab.base.errors import UsageError
from lab.model.endpoint import Endpoint, Response, Tls
from lab.model.load import Shard
from lab.model.sweeps import LoadPoint
from lab.systems.manifests import certificates
from lab.systems.reading import UnreadableError
from lab.targets.readback.pods import look_up
from lab.tests.targets.readback.answers import observed

HOSTS = ("a.test", "b.test", "c.test")
OWN = certificates.issue(certificates.CertificateRequest(("backend.test",), "ecdsa-256"))["tls.crt"]
INFO = "Name: HAProxy\nNbthread: 2\nMaxconn: 9985\nnode: a: b\n\n"
PROBE = "spec.containers[proxy].livenessProbe.timeoutSeconds"
POD: dict[str, Any] = {
    "spec": {
        "hostNetwork": False,
        "containers": [
            {"name": "log", "livenessProbe": {"timeoutSeconds": 9}},
            {"name": "proxy", "livenessProbe": {"timeoutSeconds": 5}},
        ],
    }
}


@dataclass
class Router:
    """A System of which hosts, pods and commands matter. `seen`: the certificate's name by host; no entry = no TLS."""

    status: Mapping[str, int] = field(default_factory=dict[str, int])
    seen: Mapping[str, str] = field(default_factory=dict[str, str])
    scheme: str | None = "http"
    certificate: str | None = OWN
    info: str | None = INFO
    running: Sequence[Mapping[str, Any]] = (POD,)
    tls: Tls = "none"
    fault: str = ""

    def endpoint(self, point: LoadPoint) -> Endpoint:
        assert point.routes == "all"
        if self.fault:
            raise UsageError("point", self.fault)
        return Endpoint("http://10.0.0.1:80", HOSTS[0], hosts=HOSTS, tls=self.tls)

    def fetch(self, endpoint: Endpoint, path: str, timeout_s: float) -> Response:
        known = 200 if endpoint.host in HOSTS else 503
        headers = {} if self.scheme is None else {"x-lab-scheme": self.scheme}
        tls = {"subject": self.seen[endpoint.host]} if endpoint.host in self.seen else {}
        return Response(self.status.get(endpoint.host, known), b"", headers, tls)

    def exec(self, role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        answer = self.certificate if role == "backend" else self.info
        return subprocess.CompletedProcess(list(argv), int(answer is None), answer or "", "no such file")

    def pods(self, role: str) -> Sequence[Mapping[str, Any]]:
        return self.running


def everywhere(name: str) -> dict[str, str]:
    return dict.fromkeys(HOSTS, name)


def test_what_is_set_reads_back() -> None:
    for system, check in (
        (Router(), {"kind": "haproxy", "name": "Nbthread", "value": "2"}),
        (Router(), {"kind": "haproxy", "name": "node", "value": "a: b"}),
        (Router(), {"kind": "haproxy", "name": "Nonsense", "value": "absent"}),
        (Router(), {"kind": "pod", "name": PROBE, "value": "5"}),
        (Router(), {"kind": "pod", "name": "spec.hostNetwork", "value": "false"}),
        (Router(), {"kind": "pod", "name": "spec.dnsPolicy", "value": "absent"}),
        (Router(), {"kind": "routes", "value": "3"}),
        (Router(), {"kind": "termination", "value": "none"}),
        (Router(certificate=None), {"kind": "termination", "value": "none"}),
        (Router(seen=everywhere("*.test")), {"kind": "termination", "value": "edge"}),
        (Router(seen=everywhere("*.test"), scheme="https"), {"kind": "termination", "value": "reencrypt"}),
        (Router(seen=everywhere("backend.test"), scheme="https"), {"kind": "termination", "value": "passthrough"}),
    ):
        ok, _, detail = observed(system, **check)
        assert ok and detail == ""


@pytest.mark.parametrize(
    ("system", "check", "found"),
    [
        (Router(), {"kind": "haproxy", "name": "Nbthread", "value": "4"}, "found '2'"),
        (Router(info=None), {"kind": "haproxy", "name": "Nbthread", "value": "2"}, "exited 1: no such file"),
        (Router(info="Unknown command"), {"kind": "haproxy", "name": "Nbthread", "value": "absent"}, "show info answered 'Unknown command'"),
        (Router(), {"kind": "pod", "name": PROBE, "value": "1"}, "found '5'"),
        (Router(), {"kind": "pod", "name": "spec.hostNetwork", "value": "true"}, "found 'false'"),
        (Router(running=(POD, {})), {"kind": "pod", "name": PROBE, "value": "5"}, "found '5, absent'"),
        (Router(running=()), {"kind": "pod", "name": PROBE, "value": "5"}, "no pod of the role proxy"),
        (Router(), {"kind": "pod", "name": "spec.containers", "value": "5"}, "is no single value"),
        (Router(), {"kind": "pod", "name": "spec..x[", "value": "5"}, "is no path such as"),
        (Router(), {"kind": "routes", "value": "10"}, "found '3'"),
        (Router(status={"b.test": 503}), {"kind": "routes", "value": "3"}, "found '2'"),
        (Router(status={"nobody.lab.test": 200}), {"kind": "routes", "value": "3"}, "a host without a route"),
        (Router(fault="'routed' is not one"), {"kind": "routes", "value": "3"}, "'routed' is not one"),
        (Router(), {"kind": "termination", "value": "edge"}, "found 'none'"),
        (Router(seen={"a.test": "*.test"}), {"kind": "termination", "value": "edge"}, "found 'edge, none'"),
        (Router(seen=everywhere("*.test"), scheme="https"), {"kind": "termination", "value": "passthrough"}, "found 'reencrypt'"),
        (Router(seen=everywhere("*.test")), {"kind": "termination", "value": "reencrypt"}, "found 'edge'"),
        (Router(seen=everywhere("backend.test")), {"kind": "termination", "value": "passthrough"}, "without its TLS"),
        (Router(scheme="https"), {"kind": "termination", "value": "none"}, "reencrypt without the client's"),
        (Router(scheme=None), {"kind": "termination", "value": "none"}, "a.test: status 200, X-Lab-Scheme None"),
        (Router(status={"c.test": 503}), {"kind": "termination", "value": "none"}, "c.test: status 503"),
        (Router(certificate="garbage"), {"kind": "termination", "value": "none"}, "ValueError"),
    ],
)  # fmt: skip
def test_what_is_not_set_is_not_ok(system: Router, check: dict[str, Any], found: str) -> None:
    ok, _, detail = observed(system, **check)
    assert not ok and found in detail


def test_a_path_leads_through_fields_and_named_elements() -> None:
    assert look_up(POD, "spec.containers[log].livenessProbe.timeoutSeconds") == "9"
    assert look_up(POD, "spec.containers[none].livenessProbe.timeoutSeconds") == "absent"
    assert look_up(POD, "spec.hostNetwork.deeper") == "absent"
    with pytest.raises(UnreadableError, match="is no path"):
        look_up(POD, "[proxy].")


@dataclass
class Sharing(Router):
    """Two routers: `serves` says for which hosts each answers."""

    serves: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"http://10.0.0.1:80": ("a.test", "c.test"), "http://10.0.0.2:80": ("b.test",)}
    )

    def endpoint(self, point: LoadPoint) -> Endpoint:
        shards = (Shard("http://10.0.0.1:80", ("a.test", "c.test")), Shard("http://10.0.0.2:80", ("b.test",)))
        return Endpoint("http://10.0.0.1:80", HOSTS[0], hosts=HOSTS, shards=shards)

    def fetch(self, endpoint: Endpoint, path: str, timeout_s: float) -> Response:
        return Response(200 if endpoint.host in self.serves.get(endpoint.base_url, ()) else 503, b"", {})


def test_routers_share_the_routes_when_each_answers_for_its_own_only() -> None:
    assert observed(Sharing(), kind="shards", value="2") == (True, "2", "")
    assert observed(Sharing(), kind="routes", value="3") == (True, "3", "")
    assert observed(Router(), kind="shards", value="2")[:2] == (False, "1")
    everything = Sharing(serves=dict.fromkeys(("http://10.0.0.1:80", "http://10.0.0.2:80"), HOSTS))
    ok, _, detail = observed(everything, kind="shards", value="2")
    assert not ok and "b.test is answered by http://10.0.0.1:80" in detail
    silent = Sharing(serves={"http://10.0.0.1:80": ("a.test", "c.test")})
    ok, _, detail = observed(silent, kind="shards", value="2")
    assert not ok and "b.test is not answered by http://10.0.0.2:80" in detail
    ok, found, _ = observed(silent, kind="routes", value="3")
    assert (ok, found) == (False, "2")


@dataclass
class Echoing:
    """A System whose backend says which header reached it, and whose own interface serves what mod_info and mod_status of httpd 2.4.71 do (cut)."""

    body: str = ""
    status: int = 200
    balancer: str = ""
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list[tuple[str, Mapping[str, str]]])

    def entry(self) -> None: ...

    def fetch(self, _entry: object, path: str, _timeout_s: float, headers: Mapping[str, str]) -> Response:
        self.asked.append((path, headers))
        return Response(self.status, self.body.encode(), {})

    def pods(self, _role: str) -> Sequence[Mapping[str, Any]]:
        return [{}] if self.balancer else []

    def pod_address(self, _role: str) -> str:
        return self.balancer

    def ask(self, role: str, port: int, path: str) -> str:
        assert (role, port) == ("proxy", 8404)
        if path not in PAGES:
            raise ConnectionRefusedError("refused")
        return PAGES[path]


def test_what_the_backend_was_told_is_compared_with_addresses_by_whose_they_are() -> None:
    for system, value, ok, found in (
        (Echoing("203.0.113.7, 10.64.0.2"), "203.0.113.7, client", True, "203.0.113.7, client"),
        (Echoing("10.64.0.2"), "203.0.113.7", False, "client"),
        (Echoing(), "absent", True, "absent"),
        (Echoing(), "203.0.113.7", False, "absent"),
        (Echoing("10.64.0.4", balancer="10.64.0.4"), "client", False, "balancer"),
        (Echoing("10.64.0.2", balancer="10.64.0.4"), "client", True, "client"),
        (Echoing("192.0.2.9"), "192.0.2.9", True, "192.0.2.9"),
        (Echoing(status=503), "absent", False, "unreadable"),
    ):
        check = {"kind": "echo", "name": "X-Forwarded-For", "value": value, "context": "X-Client: 192.0.2.9"}
        assert observed(system, **check)[:2] == (ok, found)
        ((path, headers),) = system.asked
        assert path == "/echo/x-forwarded-for" and headers["X-Client"] == "192.0.2.9"
        assert headers["X-Forwarded-For"] == "203.0.113.7, 198.51.100.4"


CONFIGURATION = """<dl><dt><strong>Configuration:</strong>
<dd><tt><strong>In file: /srv/httpd/httpd.conf</strong></tt></dd>
<dd><tt>&nbsp;&nbsp;15:&nbsp;MaxKeepAliveRequests <i>0</i></tt></dd>
<dd><tt>&nbsp;&nbsp;17:&nbsp;CustomLog <i>/dev/stdout &quot;%h %l \\&quot;%r\\&quot; %&gt;s&quot;</i></tt></dd>
<dd><tt>&nbsp;&nbsp;18:&nbsp;Listen <i>80</i></tt></dd>
<dd><tt>&nbsp;&nbsp;19:&nbsp;Listen <i>127.0.0.1:8404</i></tt></dd>
<dd><tt>&nbsp;&nbsp;&nbsp;&nbsp;:&nbsp;&nbsp;&nbsp;&lt;/Location&gt;</tt></dd><dd><tt>&nbsp;&nbsp;26:&nbsp;&nbsp;SetEnv <i>proxy-nokeepalive 1</i></tt></dd>
</dl>"""
STATUS = "127.0.0.1\nServerMPM: event\nBusyWorkers: 1\nIdleWorkers: 74\n"
PAGES = {"/server-info?config": CONFIGURATION, "/server-status?auto": STATUS, "/empty": ""}


def test_a_line_of_a_page() -> None:
    for name, found in (
        ("/server-info?config MaxKeepAliveRequests", "0"),
        ("/server-info?config MaxKeepAlive", "absent"),
        ("/server-info?config CustomLog", r'/dev/stdout "%h %l \"%r\" %>s"'),
        ("/server-info?config Listen", "80, 127.0.0.1:8404"),
        ("/server-info?config SetEnv proxy-nokeepalive", "1"),
        ("/server-status?auto ServerMPM", "event"),
        ("/empty LogLevel", "unreadable"),
        ("/nonsense LogLevel", "unreadable"),
    ):
        check = {"kind": "page", "port": 8404, "name": name}
        assert observed(Echoing(), **check, value=found)[:2] == (found != "unreadable", found)
        assert not observed(Echoing(), **check, value="something else")[0]
