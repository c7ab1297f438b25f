"""Check kind `envoy`, on what Envoy 1.40 answered (testdata, verbatim but for the list of its extensions)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.model.variants.variants import Check
from lab.systems.envoy import admin as envoy
from lab.targets.readback import read_back

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
    """Not of the listener that the probes come to."""
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

    def routed(cluster: str) -> dict[str, Any]:
        return {"route_config": {"virtual_hosts": [{"routes": [{"redirect": {}}, {"route": {"cluster": cluster}}]}]}}

    own = [{"name": name} for name in ("control", "envoy-admin")]
    services = {"grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}
    resources = {source: services if source == "ads_config" else {"api_config_source": services}}
    bootstrap = {"dynamic_resources": resources, "static_resources": {"clusters": own}}
    clusters = {
        "static_clusters": [{"cluster": each} for each in own],
        "dynamic_active_clusters": [{"cluster": {"name": "load"}}],
    }
    listeners = [listener(name) for name in ("ingress_http", "envoy-admin", "stats")]
    routes = {"static_route_configs": [routed("envoy-admin")], "dynamic_route_configs": [routed("load")]}
    configs = [
        {"@type": "x.BootstrapConfigDump", "bootstrap": bootstrap},
        {"@type": "x.ClustersConfigDump", **clusters},
        {"@type": "x.ListenersConfigDump", "dynamic_listeners": listeners},
        {"@type": "x.RoutesConfigDump", **routes},
    ]
    parts = envoy.parts(json.dumps({"configs": configs}))
    assert [each["route"]["cluster"] for each in parts["route"]] == ["load"]
    assert [each["name"] for each in parts["cluster"]] == ["load"]
    assert [each["stat_prefix"] for each in parts["http_connection_manager"]] == ["ingress_http"]
