"""Gateway API's objects → Traefik's file, and what its image may be asked."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from lab.base.errors import UsageError
from lab.systems import programs
from lab.systems.checker import refusal
from lab.systems.manifests.gateway_api import Backend, served
from lab.systems.manifests.gateway_objects import read_gateway, read_http_route
from lab.systems.manifests.objects import Member
from lab.systems.settings import read
from lab.systems.traefik import system as traefik
from lab.systems.traefik.config import CAN, FILE, PARTS, render, version
from lab.tests.support.gateway import CERTIFICATE, GATEWAY, ROUTE

MEMBERS = {
    Backend("backend", 80): (Member("10.64.0.3", 8080, "backend-0"),),
    Backend("other", 8080): (),
    Backend("copy", 80): (Member("10.64.0.6", 80),),
}
ENTRY_POINTS = {80: "web", 443: "secure"}


def _route() -> dict[str, Any]:
    """Without what Traefik's writer refuses."""
    route = copy.deepcopy(dict(ROUTE))
    rules = route["spec"]["rules"][:2]
    del rules[1]["timeouts"], rules[1]["filters"][0]["requestHeaderModifier"]["add"]
    route["spec"]["rules"] = rules
    return route


def rendered(data: Mapping[str, str] | None = None, entry_points: Mapping[int, str] = ENTRY_POINTS) -> str:
    ports = served([read_gateway("Gateway/proxy", GATEWAY)], [read_http_route("HTTPRoute/bench", _route())])
    settings = read("ConfigMap/traefik", data or {}, PARTS)
    return render(ports, MEMBERS, {"certificate": CERTIFICATE}, entry_points, settings)


def test_a_route_is_written_whole() -> None:
    http = json.loads(rendered())["http"]
    rules = [router["rule"] for router in http["routers"].values()]
    assert rules[:4] == [
        "Host(`bench.lab.test`) && Path(`/a`) && Method(`POST`)",
        "Host(`bench.lab.test`) && PathRegexp(`^/[ab]$`)",
        "Host(`bench.lab.test`) && (Path(`/a`) || PathPrefix(`/a/`)) && Header(`x-who`, `me`)"
        " && HeaderRegexp(`x-what`, `a+`) && Query(`q`, `1`)",
        "Host(`bench.lab.test`) && PathPrefix(`/`)",
    ]
    first, *_, last = (router for name, router in http["routers"].items() if name.startswith("80-"))
    assert first["priority"] > last["priority"] and first["middlewares"] == ["80-0-headers", "80-0-path"]
    assert http["middlewares"]["80-0-headers"]["headers"] == {
        "customRequestHeaders": {"A": "b", "E": "", "Host": "inner"},
        "customResponseHeaders": {"Server": ""},
    }
    assert http["middlewares"]["80-0-path"]["replacePathRegex"] == {"regex": "^/a/*", "replacement": "/b/"}
    shares = [{"name": "backend-80", "weight": 9}, {"name": "other-8080", "weight": 1}]
    assert http["services"][f"{first['service']}"]["mirroring"]["mirrors"] == [{"name": "copy-80", "percent": 100}]
    assert http["services"]["80-0-shares"]["weighted"]["services"] == shares
    assert "serversTransports" not in http and http["routers"]["443-0"]["tls"] == {}


def test_a_servers_transport_is_made_where_one_is_asked_for() -> None:
    """And another file has another version."""
    text = rendered({"serversTransport.forwardingTimeouts.dialTimeout": "60s"})
    http = json.loads(text)["http"]
    assert http["serversTransports"] == {"lab": {"forwardingTimeouts": {"dialTimeout": "60s"}}}
    assert http["services"]["backend-80"]["loadBalancer"]["serversTransport"] == "lab"
    assert version(text) != version(rendered())


@pytest.mark.parametrize("what", ["a redirect", "a timeout"])
def test_what_its_routers_have_not_is_refused_with_the_rule(what: str) -> None:
    rules = read_http_route("HTTPRoute/bench", ROUTE).rules
    with pytest.raises(UsageError, match=what):
        rules[2 if what == "a redirect" else 1].refuse("Traefik", CAN)


def test_a_port_without_an_entry_point_is_refused() -> None:
    with pytest.raises(UsageError, match="no entry point has port 443"):
        rendered(entry_points={80: "web"})


def _said(*args: str, data: Mapping[str, str] | None = None) -> str:
    program = programs.program("test", "traefik", "3.7.15")
    served_by = [
        "--entrypoints.web.address=:80",
        "--entrypoints.secure.address=:443",
        "--entrypoints.traefik.address=127.0.0.1:8080",
        "--api.insecure=true",
        f"--providers.file.filename={FILE}",
    ]
    files = {FILE: rendered(data), "/srv/traefik/check.bash": traefik.CHECK.read_text()}
    command = ["bash", "/srv/traefik/check.bash", program.inside, *served_by, *args]
    return refusal(command, files, programs={program.inside: program.file})


@pytest.mark.slow
def test_traefik_itself_takes_what_is_written_and_names_what_it_does_not_know() -> None:
    assert _said() == ""
    assert "field not found, node: dialTimeot" in _said(data={"serversTransport.forwardingTimeouts.dialTimeot": "1s"})
    said = _said("--experimental.fastprxy=true")
    assert said.endswith("field not found, node: fastprxy") and not said.startswith("{")
