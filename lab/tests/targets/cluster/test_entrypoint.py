"""Ways into a role's pods, from an API server that shows what it is told. Tried on kind with OKD's router: see the note."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest

from lab.base.errors import MeasuringError, UsageError
from lab.model.variants.variants import load_variant
from lab.targets.cluster.entrypoint import Entrypoint, each_pod, entrypoint
from lab.targets.cluster.objects import pending_s

Object = dict[str, Any]


def pod(name: str = "proxy-a", node: str = "172.18.0.2", ready: str = "True", **metadata: str) -> Object:
    status = {"hostIP": node, "podIP": "10.244.0.7", "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, "namespace": "ingress-lab", **metadata}, "status": status}


@dataclass
class Shown:
    """An API server: its Services by name, and the pods of any role."""

    services: dict[str, Object] = field(default_factory=dict[str, Object])
    pods: list[Object] = field(default_factory=lambda: [pod()])

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        assert (api_version, kind, namespace) == ("v1", "Service", "ingress-lab")
        return self.services.get(name)

    def list(self, api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        assert (api_version, kind, namespace) == ("v1", "Pod", "ingress-lab") and labels.startswith("lab/role=")
        return self.pods


def way(api: Any, objects: list[Object], role: Any, port: str = "http") -> Entrypoint:
    return entrypoint(api, objects, role, port)


def manifests(variant: str) -> list[Object]:
    return list(copy.deepcopy(load_variant(variant).manifests))


def shown(objects: list[Object], *pods: Object, **changes: Any) -> Shown:
    """Services as an API server completes them."""
    services: dict[str, Object] = {}
    for number, obj in enumerate(item for item in objects if item["kind"] == "Service"):
        spec: Object = {"clusterIP": f"10.96.0.{number}", "type": "ClusterIP", **copy.deepcopy(obj["spec"]), **changes}
        for index, item in enumerate(spec["ports"]):
            item["nodePort"] = 30000 + index
        services[obj["metadata"]["name"]] = {**obj, "spec": spec}
    return Shown(services, list(pods) or [pod()])


def test_a_load_balancer_is_entered_by_a_node_port_of_a_node_with_a_ready_pod() -> None:
    objects = manifests("okd-edge")
    late = pod("proxy-0", "172.18.0.9", ready="False")
    ending = pod("proxy-1", "172.18.0.8", deletionTimestamp="now")
    api = shown(objects, late, ending, pod("proxy-z", "172.18.0.4"), pod("proxy-b", "172.18.0.3"))
    found = way(api, objects, "proxy", "https")
    assert (found.host, found.port) == ("172.18.0.3", 30001)
    assert found.words == (
        "through node 172.18.0.3 port 30001"
        " (NAT of a Service of type LoadBalancer, no balancer in front, the client's address kept)"
    )
    assert "masquerade" in way(shown(objects, externalTrafficPolicy="Cluster"), objects, "proxy").words
    assert way(shown(objects), objects, "proxy", "quic").port == 30000, "the first"


def test_every_ready_pod_is_a_place_of_its_own() -> None:
    objects = manifests("baseline")
    pods = [pod("proxy-a"), pod("proxy-b"), pod("proxy-c", ready="False"), pod("proxy-d", deletionTimestamp="now")]
    for number, one in enumerate(pods):
        one["status"]["podIP"] = f"10.244.0.{number}"
    api: Any = shown(objects, *pods)
    assert each_pod(api, objects, "proxy") == [("10.244.0.0", 80), ("10.244.0.1", 80)]
    assert each_pod(api, objects, "proxy", "https") == [("10.244.0.0", 443), ("10.244.0.1", 443)]


def test_a_cluster_ip_is_the_way_to_any_other_service_and_a_headless_one_leads_to_the_pod() -> None:
    objects = manifests("okd")
    backend = way(shown(objects), objects, "backend")
    assert backend.host.startswith("10.96.0.") and backend.port == 8080
    assert backend.words == "through the Service's cluster IP (kube-proxy's NAT on the client's node)"
    assert way(shown(objects), objects, "backend", "https").port == 8443
    found = way(shown(objects, clusterIP="None"), objects, "backend")
    assert (found.host, found.port, found.words) == ("10.244.0.7", 8080, "to the pod itself (a headless Service)")


def test_a_knob_leads_past_the_services_address_and_a_disturbance_needs_it() -> None:
    """Whatever the Service's type, and though pods have their node's ports: those end with them, and it is said."""
    objects = manifests("pod-address")
    api: Any = shown(objects)
    assert (way(api, objects, "proxy").host, way(api, objects, "proxy").port) == ("10.244.0.7", 80)
    assert way(api, objects, "backend").host.startswith("10.96.0.")
    with pytest.raises(UsageError, match="Service/proxy: is headless"):
        entrypoint(api, objects, "proxy", lasting=True)
    objects = manifests("okd-edge-hostnetwork")
    api = shown(objects)
    found = entrypoint(api, objects, "proxy", "https", lasting=True)
    assert found.host.startswith("10.96.0.")
    assert found.words.endswith("(kube-proxy's NAT on the client's node), not by the host port that its pods have")


def test_the_host_network_is_entered_at_the_nodes_own_port_without_asking_for_the_service() -> None:
    objects = manifests("okd-edge-hostnetwork")
    found = way(Shown(), objects, "proxy", "https")
    assert (found.host, found.port) == ("172.18.0.2", 8443)
    assert found.words == "to node 172.18.0.2, whose own ports the pod's are"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_role_that_no_service_selects_is_refused(elsewhere: bool) -> None:
    """There is none, or only in another namespace."""
    objects = manifests("okd")
    services = [obj for obj in objects if obj["kind"] == "Service"]
    for obj in services:
        obj["metadata"]["namespace"] = "elsewhere"
    found = objects if elsewhere else [obj for obj in objects if obj not in services]
    with pytest.raises(UsageError, match="Deployment/proxy: no Service selects the pods of the role proxy"):
        way(Shown(), found, "proxy")


def test_what_the_variant_or_the_cluster_does_not_show_is_told() -> None:
    with pytest.raises(UsageError, match="role proxy: this variant has no such pod"):
        way(Shown(), manifests("direct"), "proxy")
    objects = manifests("okd")
    with pytest.raises(MeasuringError, match="Service/proxy: is not there"):
        way(Shown(), objects, "proxy")
    with pytest.raises(MeasuringError, match="role proxy: no pod is ready in ingress-lab"):
        way(shown(objects, pod(ready="False")), objects, "proxy")
    api = shown(objects)
    for item in api.services["proxy"]["spec"]["ports"]:
        del item["nodePort"]
    with pytest.raises(MeasuringError, match="Service/proxy: port 80 has no node port"):
        way(api, objects, "proxy")


def test_a_router_may_reload_until_its_interval_is_over() -> None:
    """Whatever runs it; what has no interval may not."""
    for variant, seconds in {"okd": 6, "reload-120s": 121, "okd-edge-hostnetwork": 6, "nginx": 0, "direct": 0}.items():
        assert pending_s(load_variant(variant).manifests) == seconds
    daemons = [{**obj, "kind": "DaemonSet"} if obj["kind"] == "Deployment" else obj for obj in manifests("okd")]
    assert pending_s(daemons) == 6 and way(shown(daemons), daemons, "proxy").port == 30000
