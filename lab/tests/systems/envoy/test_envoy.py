"""Gateway API's objects → Envoy's configuration, what its image may be asked, and check kind `envoy`, on what Envoy 1.40 answered (testdata, verbatim
but for the list of its extensions).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import NotMeasurableError, UsageError
from lab.model.variants.variants import Check
from lab.systems import programs
from lab.systems.checker import find_refusal
from lab.systems.envoy import system as envoy
from lab.systems.envoy.system import BOOTSTRAP, CHECKED, PARTS, render
from lab.systems.manifests.gateway_api import ServicePort, list_served_ports, read_gateway, read_http_route
from lab.systems.manifests.objects import Endpoint
from lab.systems.settings import read_settings
from lab.systems.system import Context
from lab.targets.readback import read_back
from lab.tests.support.contexts import context_of
from lab.tests.support.gateway import CERTIFICATE, GATEWAY, ROUTE

MEMBERS = {
    ServicePort("backend", 80): (Endpoint("10.64.0.3", 8080, "backend-0"), Endpoint("10.64.0.5", 8080, "backend-1")),
    ServicePort("other", 8080): (),
}


def rendered(
    data: Mapping[str, str] | None = None, members: Mapping[ServicePort, Sequence[Endpoint]] = MEMBERS
) -> dict[str, str]:
    ports = list_served_ports([read_gateway("Gateway/proxy", GATEWAY)], [read_http_route("HTTPRoute/bench", ROUTE)])
    return render(ports, members, {"certificate": CERTIFICATE}, read_settings("ConfigMap/envoy", data or {}, PARTS))


def resources(files: Mapping[str, str], name: str) -> list[dict[str, Any]]:
    return json.loads(files[f"/srv/envoy/{name}.json"])["resources"]


def test_a_route_is_written_whole_and_endpoints_of_each_cluster_into_a_file_of_their_own() -> None:
    """So that nothing else is loaded when a backend comes or goes. Envoy rejects a file with the endpoints of several clusters."""
    (routes,) = resources(rendered(), "rds-80")
    (host, other) = routes["virtual_hosts"]
    assert (host["domains"], other["domains"][0]) == (["bench.lab.test", "bench.lab.test:*"], "shop.example")
    exact, prefix, root = host["routes"]
    added = [{"header": {"key": "A", "value": "b"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
    to_other = {"route": {"cluster": "other:8080", "timeout": "90s"}, "request_headers_to_add": added}
    assert exact == {"match": {"path": "/a"}, **to_other}
    assert prefix == {"match": {"path_separated_prefix": "/a"}, **to_other}
    assert root == {"match": {"prefix": "/"}, "route": {"cluster": "backend:80"}}
    before = rendered()
    (first,), (second,) = resources(before, "eds"), resources(before, "eds-1")
    found = {item["cluster_name"]: item["endpoints"][0]["lb_endpoints"] for item in (first, second)}
    watched = [
        item["eds_cluster_config"]["eds_config"]["path_config_source"]["path"] for item in resources(before, "cds")
    ]
    assert watched == ["/srv/envoy/eds.json", "/srv/envoy/eds-1.json"]
    assert [len(found[name]) for name in ("backend:80", "other:8080")] == [2, 0]
    after = rendered(members=MEMBERS | {ServicePort("backend", 80): MEMBERS[ServicePort("backend", 80)][:1]})
    assert {path for path in after if after[path] != before[path]} == {"/srv/envoy/eds.json", CHECKED}


def test_settings_are_laid_over_every_part_but_what_the_probes_come_to() -> None:
    data = {
        "listener.per_connection_buffer_limit_bytes": "32768",
        "http_connection_manager.generate_request_id": "false",
        "router.suppress_envoy_headers": "true",
        "cluster.lb_policy": "LEAST_REQUEST",
        "tls.require_sni": "true",
        "bootstrap.overload_manager.refresh_interval": "1s",
    }
    files = rendered(data)
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
    program = programs.provide_wheel_program("test", "envoy", version)
    command = [program.inside, "--mode", "validate", "-l", "critical", "-c", CHECKED]
    assert find_refusal(command, rendered(), programs={program.inside: program.file}) == ""
    said = find_refusal(command, rendered({"cluster.lb_polcy": "RANDOM"}), programs={program.inside: program.file})
    assert "lb_polcy" in said and not said.startswith("[")


def _context(*args: str, cpus: int = 1) -> Context:
    return context_of("envoy", cpus, args=(*context_of("envoy").container.args, *args))


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a program of that name."""
    program = tmp_path / "proxies" / "envoy-1.40.0" / "envoy"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"\x7fELF")
    monkeypatch.setattr(programs, "WHEELS", tmp_path / "proxies")
    return tmp_path


def test_the_image_is_its_own_program_in_the_version_of_its_tag(fetched: Path) -> None:
    started = envoy.realise(_context())
    assert started.command == ("/srv/proxy/envoy", "-c", BOOTSTRAP, "--drain-time-s", "10")
    assert started.about == "envoy 1.40.0"
    assert envoy.realise(_context("--concurrency", "2", cpus=2)).command[-1] == "2"


@pytest.mark.parametrize(
    ("args", "error", "fault"),
    [
        (["2"], NotMeasurableError, "asks for 2 workers, the proxy has 1 CPU here"),
        (["many"], UsageError, "expected a positive number, got many"),
        ([], UsageError, "expected a positive number, got nothing"),
    ],
)
def test_too_many_workers_are_refused(fetched: Path, args: list[str], error: type[Exception], fault: str) -> None:
    with pytest.raises(error, match=fault):
        envoy.realise(_context("--concurrency", *args))


DUMP = (Path(__file__).parent / "testdata" / "envoy-1.40-config_dump.json").read_text()
INFO = '{"version": "9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL", "state": "LIVE"}'
STATS = "server.concurrency: 2\n"


@dataclass
class Envoy:
    """What System.ask answers; None = nobody listens."""

    dump: str | None = DUMP

    def ask(self, role: str, port: int, path: str) -> str:
        assert (role, port) == ("proxy", 19000)
        if self.dump is None:
            raise OSError("Connection refused")
        return {"/config_dump": self.dump, "/server_info": INFO}.get(path, STATS if "concurrency" in path else "")


def observed(name: str, value: str, system: Envoy | None = None) -> tuple[bool, str, str]:
    asked: Any = system or Envoy()
    (reading,) = read_back(asked, [Check(kind="envoy", name=name, value=value)])
    return reading.ok, reading.observed, reading.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", "1.40.0"),
        ("stats.server.concurrency", "2"),
        ("cluster.circuit_breakers.thresholds.0.max_connections", "65536"),
        ("cluster.name", "backend:8080"),
        ("cluster.lb_policy", "absent"),
        ("listener.address.socket_address.port_value", "80"),
        ("http_connection_manager.stat_prefix", "ingress"),
        ("http_connection_manager.access_log.0.typed_config.path", "absent"),
        ("bootstrap.node.cluster", "ingress-lab"),
        ("route.route.cluster", "backend:8080"),
        ("route.route.timeout", "absent"),
    ],
)
def test_what_it_runs_is_read_of_what_serves_the_load(name: str, value: str) -> None:
    assert observed(name, value) == (True, value, "")
    assert not observed(name, f"{value}0")[0]


@pytest.mark.parametrize(
    ("name", "system", "detail"),
    [
        ("clusters.name", Envoy(), "no 'clusters' that serves the load"),
        ("stats.server.nonsense", Envoy(), "/stats has no 'server.nonsense'"),
        ("cluster.name", Envoy(None), "port 19000: /config_dump: Connection refused"),
        ("cluster.name", Envoy(DUMP[:5000]), "JSONDecodeError"),
        ("cluster.name", Envoy("{}"), "KeyError"),
    ],
)
def test_what_cannot_be_read_is_not_set(name: str, system: Envoy, detail: str) -> None:
    ok, found, said = observed(name, "1", system)
    assert (ok, found) == (False, "unreadable") and detail in said


def test_requests_are_counted() -> None:
    assert envoy.counted("http.ingress.downstream_rq_total: 40120\n") == {"requests": 40120}
    both = "http.ingress.downstream_rq_http2_total: 7\nhttp.ingress.downstream_rq_total: 40120\n"
    assert envoy.counted(both) == {"requests": 40120, "requests_h2": 7}
    assert envoy.counted("") == {}
    assert envoy.counted("http.ingress_http.downstream_rq_total: 40\n") == {"requests": 40}


@pytest.mark.parametrize("source", ["cds_config", "ads_config"])
def test_the_interfaces_of_an_envoy_that_a_control_plane_tells_are_not_the_load_s(source: str) -> None:
    """Contour's has one for itself and one for its admin interface, Envoy Gateway's the control plane's alone."""

    def listener(name: str) -> dict[str, Any]:
        filters = [{"typed_config": {"@type": "x.HttpConnectionManager", "stat_prefix": name}}]
        return {"active_state": {"listener": {"name": name, "filter_chains": [{"filters": filters}]}}}

    def routed(cluster: str) -> list[dict[str, Any]]:
        hosts = [{"routes": [{"redirect": {}}, {"route": {"cluster": cluster}}]}]
        return [{"route_config": {"virtual_hosts": hosts}}]

    own = [{"name": name} for name in ("control", "envoy-admin")]
    services = {"grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}
    resources = {source: services if source == "ads_config" else {"api_config_source": services}}
    configs = {
        "Bootstrap": {"bootstrap": {"dynamic_resources": resources, "static_resources": {"clusters": own}}},
        "Clusters": {
            "static_clusters": [{"cluster": each} for each in own],
            "dynamic_active_clusters": [{"cluster": {"name": "load"}}],
        },
        "Listeners": {"dynamic_listeners": [listener(name) for name in ("ingress_http", "envoy-admin", "stats")]},
        "Routes": {"static_route_configs": routed("envoy-admin"), "dynamic_route_configs": routed("load")},
    }
    dump = {"configs": [{"@type": f"x.{kind}ConfigDump", **config} for kind, config in configs.items()]}
    parts = envoy.list_parts(json.dumps(dump))
    assert [each["route"]["cluster"] for each in parts["route"]] == ["load"]
    assert [each["name"] for each in parts["cluster"]] == ["load"]
    assert [each["stat_prefix"] for each in parts["http_connection_manager"]] == ["ingress_http"]
