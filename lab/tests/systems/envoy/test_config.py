"""Gateway API's objects → Envoy's configuration, and what its image may be asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import NotMeasurableError, UsageError
from lab.model.variants.variants import load_variant
from lab.systems import programs
from lab.systems.checker import refusal
from lab.systems.envoy import system as envoy
from lab.systems.envoy.config import BOOTSTRAP, CHECKED, PARTS, render
from lab.systems.manifests import objects
from lab.systems.manifests.gateway_api import Backend, read_gateway, read_http_route, served
from lab.systems.manifests.objects import Member
from lab.systems.settings import read
from lab.systems.system import Context
from lab.tests.support.gateway import CERTIFICATE, GATEWAY, ROUTE

MEMBERS = {
    Backend("backend", 80): (Member("10.64.0.3", 8080, "backend-0"), Member("10.64.0.5", 8080, "backend-1")),
    Backend("other", 8080): (),
}


def rendered(data: Mapping[str, str] | None = None) -> dict[str, str]:
    ports = served([read_gateway("Gateway/proxy", GATEWAY)], [read_http_route("HTTPRoute/bench", ROUTE)])
    return render(ports, MEMBERS, {"certificate": CERTIFICATE}, read("ConfigMap/envoy", data or {}, PARTS))


def resources(files: Mapping[str, str], name: str) -> list[dict[str, Any]]:
    return json.loads(files[f"/srv/envoy/{name}.json"])["resources"]


def test_a_route_is_written_whole() -> None:
    (routes,) = resources(rendered(), "rds-80")
    (host, other) = routes["virtual_hosts"]
    assert (host["domains"], other["domains"][0]) == (["bench.lab.test", "bench.lab.test:*"], "shop.example")
    exact, prefix, root = host["routes"]
    added = [{"header": {"key": "A", "value": "b"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
    to_other = {"route": {"cluster": "other:8080", "timeout": "90s"}, "request_headers_to_add": added}
    assert exact == {"match": {"path": "/a"}, **to_other}
    assert prefix == {"match": {"path_separated_prefix": "/a"}, **to_other}
    assert root == {"match": {"prefix": "/"}, "route": {"cluster": "backend:80"}}


def test_endpoints_are_a_file_of_their_own_with_a_version_of_its_own() -> None:
    """So that nothing else is loaded when a backend comes or goes."""
    before = rendered()
    found = {item["cluster_name"]: item["endpoints"][0]["lb_endpoints"] for item in resources(before, "eds")}
    assert [len(found[name]) for name in ("backend:80", "other:8080")] == [2, 0]
    fewer = MEMBERS | {Backend("backend", 80): MEMBERS[Backend("backend", 80)][:1]}
    ports = served([read_gateway("Gateway/proxy", GATEWAY)], [read_http_route("HTTPRoute/bench", ROUTE)])
    after = render(ports, fewer, {"certificate": CERTIFICATE}, read("ConfigMap/envoy", {}, PARTS))
    assert {path for path in after if after[path] != before[path]} == {"/srv/envoy/eds.json", CHECKED}


def test_settings_are_laid_over_every_part_but_what_the_probes_come_to() -> None:
    files = rendered(
        {
            "listener.per_connection_buffer_limit_bytes": "32768",
            "http_connection_manager.generate_request_id": "false",
            "router.suppress_envoy_headers": "true",
            "cluster.lb_policy": "LEAST_REQUEST",
            "tls.require_sni": "true",
            "bootstrap.overload_manager.refresh_interval": "1s",
        }
    )
    bootstrap = json.loads(files[BOOTSTRAP])
    plain, encrypted, ready = bootstrap["static_resources"]["listeners"]
    assert plain["per_connection_buffer_limit_bytes"] == 32768 and "per_connection_buffer_limit_bytes" not in ready
    manager = plain["filter_chains"][0]["filters"][0]["typed_config"]
    assert manager["generate_request_id"] is False
    assert manager["http_filters"][0]["typed_config"]["suppress_envoy_headers"] is True
    assert encrypted["filter_chains"][0]["transport_socket"]["typed_config"]["require_sni"] is True
    assert bootstrap["overload_manager"] == {"refresh_interval": "1s"}
    assert {item["lb_policy"] for item in resources(files, "cds")} == {"LEAST_REQUEST"}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.36.4", "1.40.0"])
def test_envoy_itself_takes_what_is_written_and_names_what_it_does_not_know(version: str) -> None:
    program = programs.program("test", "envoy", version)
    command = [program.inside, "--mode", "validate", "-l", "critical", "-c", CHECKED]
    assert refusal(command, rendered(), programs={program.inside: program.file}) == ""
    said = refusal(command, rendered({"cluster.lb_polcy": "RANDOM"}), programs={program.inside: program.file})
    assert "lb_polcy" in said and not said.startswith("[")


def _context(tmp_path: Path, *args: str, cpus: int = 1) -> Context:
    wanted = objects.read(load_variant("envoy").manifests)
    (pod,) = wanted.role("proxy")
    container = replace(pod.containers[0], args=(*pod.containers[0].args, *args))
    return Context(container, pod, wanted, {item.name: "192.0.2.1" for item in wanted.pods}, cpus, 4096, 1024)


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a program of that name."""
    program = tmp_path / "proxies" / "envoy-1.40.0" / "envoy"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"\x7fELF")
    monkeypatch.setattr(programs, "BROUGHT", tmp_path / "proxies")
    return tmp_path


def test_the_image_is_its_own_program_in_the_version_of_its_tag(fetched: Path) -> None:
    started = envoy.realise(_context(fetched))
    assert started.command == ("/srv/proxy/envoy", "-c", BOOTSTRAP, "--drain-time-s", "10")
    assert started.about == "envoy 1.40.0"


@pytest.mark.parametrize(
    ("args", "error", "fault"),
    [
        (("--concurrency", "2"), NotMeasurableError, "asks for 2 workers, the proxy has 1 CPU here"),
        (("--concurrency", "many"), UsageError, "expected a positive number, got many"),
        (("--concurrency",), UsageError, "expected a positive number, got nothing"),
    ],
)
def test_workers_that_cannot_be_had_are_refused(
    fetched: Path, args: tuple[str, ...], error: type[Exception], fault: str
) -> None:
    with pytest.raises(error, match=fault):
        envoy.realise(_context(fetched, *args))
    if args[1:] == ("2",):
        assert envoy.realise(_context(fetched, *args, cpus=2)).command[-1] == "2"
