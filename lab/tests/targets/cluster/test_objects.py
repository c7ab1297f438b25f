"""Rendered manifests → what is applied: labels, images, certificates, order; and ways into a role's pods. Asks no cluster."""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass, field
from typing import Any

import pytest

from lab.base.errors import MeasuringError, UsageError
from lab.model.variants import hosts
from lab.model.variants.variants import load_variant
from lab.systems.manifests.certificates import subject
from lab.targets.cluster import objects
from lab.targets.cluster.api import BROUGHT_UP, RUN_LABEL
from lab.targets.cluster.entrypoint import Entrypoint, find_entrypoint, list_pod_addresses
from lab.targets.cluster.objects import NO_BALANCER, Reference, compute_pending_s
from lab.targets.cluster.target import ClusterTarget, prepare_for_side


class Images:
    def resolve(self, reference: str) -> str:
        return f"mirror.test/{reference}"


class Kinds:
    """A cluster that knows what `objects` may meet, but no Route."""

    place = "context test"

    def resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        namespaced = not kind.startswith("Cluster") and kind not in ("Namespace", "IngressClass")
        return None if kind == "Route" else (kind.lower() + "s", namespaced)


Object = dict[str, Any]
IMAGES: Any = Images()
KINDS: Any = Kinds()


def prepared(name: str) -> list[dict[str, Any]]:
    return objects.prepare(load_variant(name).manifests, IMAGES, "run-1", "stamp-1")


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "StatefulSet", "Job"])
def test_a_role_is_that_of_the_pods_whatever_makes_them(kind: str) -> None:
    template = {"metadata": {"labels": {"lab/role": "proxy"}}, "spec": {"containers": []}}
    obj = {"kind": kind, "metadata": {"name": "x", "labels": {"lab/role": "backend"}}, "spec": {"template": template}}
    assert objects.find_role(obj) == "proxy"
    assert objects.find_role({"kind": "Pod", **template}) == "proxy"
    assert objects.find_role({"kind": "Service", "metadata": {"name": "x"}, "spec": {}}) is None
    assert objects.find_role(obj | {"spec": {"template": {"metadata": {}, "spec": {}}}}) is None


def one(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (obj,) = [obj for obj in found if obj["kind"] == kind and obj["metadata"]["name"] == name]
    return obj


@pytest.mark.parametrize("name", ["baseline", "okd-reencrypt", "aws-a1-node", "direct"])
def test_every_object_and_pod_carries_the_runs_label_and_every_image_is_resolved(name: str) -> None:
    for obj in prepared(name):
        assert obj["metadata"]["labels"][RUN_LABEL] == "run-1"
        template = objects.pod_template(obj)
        if template is not None:
            assert template["metadata"]["labels"][RUN_LABEL] == "run-1"
            assert template["metadata"]["annotations"][BROUGHT_UP] == "stamp-1"
            containers = template["spec"].get("initContainers", []) + template["spec"]["containers"]
            assert all(item["image"].startswith("mirror.test/") for item in containers)


def test_what_is_prepared_is_a_copy_in_order_whose_selectors_never_change() -> None:
    variant = load_variant("okd-edge")
    before = copy.deepcopy(variant.manifests)
    kinds = [obj["kind"] for obj in objects.prepare(variant.manifests, IMAGES, "run-1", "stamp-1")]
    assert variant.manifests == before
    assert kinds[0] == "Namespace" and set(kinds[-2:]) == {"Deployment"}
    ordered = ("ServiceAccount", "ClusterRoleBinding", "Service", "Route")
    assert sorted(ordered, key=kinds.index) == list(ordered)
    found = prepared("baseline")
    assert RUN_LABEL not in one(found, "Deployment", "proxy")["spec"]["selector"]["matchLabels"]
    assert RUN_LABEL not in one(found, "Service", "proxy")["spec"]["selector"]
    inner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}}
    of_list = {"apiVersion": "v1", "kind": "List"}
    nested = {**of_list, "items": [{**of_list, "items": [inner]}, inner]}
    assert [obj["kind"] for obj in objects.prepare([nested], IMAGES, "r", "s")] == ["ConfigMap", "ConfigMap"]


def test_a_secret_gets_the_certificate_that_it_asks_for_and_another_key_is_refused() -> None:
    data = one(prepared("okd-reencrypt"), "Secret", "router-certificate")["data"]
    assert set(data) == {"tls.crt", "tls.key", "ca.crt"}
    assert subject(base64.b64decode(data["tls.crt"]).decode()) == "*.apps.lab.test"
    secret = copy.deepcopy(one([dict(obj) for obj in load_variant("tls").manifests], "Secret", "ingress-certificate"))
    secret["data"]["tls.cr"] = secret["data"].pop("tls.crt")
    said = "Secret ingress-lab/ingress-certificate: data: 'tls.cr' is empty.*\n.*'tls.crt'"
    with pytest.raises(UsageError, match=said):
        objects.fill_certificate(secret)


def test_no_balancer_is_bought_and_pods_prefer_another_node_than_the_generators() -> None:
    assert one(prepared("okd"), "Service", "proxy")["spec"]["loadBalancerClass"] == NO_BALANCER
    assert "loadBalancerClass" not in one(prepared("baseline"), "Service", "proxy")["spec"]
    for name in ("proxy", "backend"):
        affinity = one(prepared("baseline"), "Deployment", name)["spec"]["template"]["spec"]["affinity"]
        term, beside = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert beside["weight"] < term["weight"], "away from the generator first, then from each other"
        assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == {"lab/role": "generator"}
    tuning = [obj for obj in prepared("aws-a1-node") if obj["kind"] == "DaemonSet"]
    assert tuning and all("affinity" not in obj["spec"]["template"]["spec"] for obj in tuning)


def test_an_unknown_kind_and_a_patch_that_fits_nothing_are_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="knows no Route of route.openshift.io/v1\n.*`just up` brings"):
        objects.vet(KINDS, load_variant("okd").manifests)
    manifests = [copy.deepcopy(obj) for obj in load_variant("direct").manifests]
    manifests[-1]["metadata"]["annotations"] = {objects.ON_CLUSTERS: "envoy-gateway"}
    with pytest.raises(UsageError, match="lab/on-clusters: envoy-gateway: kustomize: "):
        objects.lay_over_for_cluster(manifests)


def test_the_right_side_shares_no_name_with_the_left() -> None:
    manifests = load_variant("baseline").manifests
    left, right = objects.rename_for_side(manifests, "left"), objects.rename_for_side(manifests, "right")
    assert left == list(manifests)

    def named(found: list[Any]) -> set[tuple[str, str, str]]:
        return {(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for obj in found}

    assert not named(left) & named(right)
    (proxy,) = [obj for obj in right if obj["kind"] == "Deployment" and obj["metadata"]["name"] == "proxy"]
    args = proxy["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--controller-class=k8s.io/ingress-lab-right" in args and "--ingress-class=ingress-lab-right" in args
    (ingress,) = [obj for obj in right if obj["kind"] == "Ingress"]
    assert ingress["spec"]["ingressClassName"] == "ingress-lab-right"
    assert ingress["spec"]["rules"][0]["host"] == "bench.lab.test"
    right = prepare_for_side(objects.lay_over_for_cluster(load_variant("envoy-gateway").manifests), "right")
    own = one([dict(obj) for obj in right], "GatewayClass", "ingress-lab-right")["spec"]["controllerName"]
    settings = one([dict(obj) for obj in right], "ConfigMap", "envoy-gateway")["data"]["envoy-gateway.yaml"]
    assert own.endswith("/ingress-lab-right") and own in settings and "[ingress-lab-right]" in settings
    assert "namespace" not in one([dict(obj) for obj in right], "GatewayClass", "ingress-lab-right")["metadata"]


def test_a_name_that_tls_needs_is_the_sides_own_and_as_long() -> None:
    left, right = (prepare_for_side(load_variant("tls").manifests, side) for side in ("left", "right"))
    assert list(hosts.find_hosts(left)) == ["bench.lab.test"] and list(hosts.find_hosts(right)) == ["bench.rab.test"]
    (secret,) = [obj for obj in right if obj["kind"] == "Secret"]
    assert "bench.rab.test" in str(secret["metadata"]["annotations"])
    assert list(hosts.find_hosts(prepare_for_side(load_variant("baseline").manifests, "right"))) == ["bench.lab.test"]


def test_what_one_node_has_once_bears_no_pair() -> None:
    for name, why in (
        ("baseline", ""),
        ("keepalive", ""),
        ("okd-hostnetwork", "the node's own ports"),
        ("aws-a1-node", "the node's kernel"),
    ):

        def unconnected() -> Any:
            raise AssertionError

        said = ClusterTarget("test", unconnected, "").unpaired(load_variant(name))
        assert why in said and bool(why) == bool(said)


def test_a_sides_pods_go_where_the_others_are() -> None:
    """On one node; where the others are spread, so are these."""
    manifests = prepared("baseline")
    objects.bind_to_nodes(manifests, {"proxy": {"worker"}, "backend": {"worker", "worker2"}})
    selectors = {
        objects.find_role(obj): objects.pod_spec(obj).get("nodeSelector") for obj in manifests if objects.find_role(obj)
    }
    assert selectors["proxy"] == {"kubernetes.io/os": "linux", "kubernetes.io/hostname": "worker"}
    assert "kubernetes.io/hostname" not in (selectors["backend"] or {})


def on_clusters(name: str) -> list[dict[str, Any]]:
    return objects.prepare(objects.lay_over_for_cluster(load_variant(name).manifests), IMAGES, "run-1", "stamp-1")


def test_envoy_gateway_makes_on_a_cluster_what_its_pods_are_said_to_be() -> None:
    found = on_clusters("envoy-gateway-1-cpu")
    proxy, controller = one(found, "EnvoyProxy", "proxy"), one(found, "Deployment", "envoy-gateway")
    assert [objects.find_role(obj) for obj in (proxy, controller)] == ["proxy", None]
    assert objects.find_workload(proxy) == Reference("apps/v1", "Deployment", "ingress-lab", "proxy")
    assert objects.find_workload(controller) == Reference.of(controller)
    assert not [obj for obj in found if Reference.of(obj) == objects.find_workload(proxy)]
    template = objects.pod_template(proxy)
    assert template is not None and template["metadata"]["labels"] == {"lab/role": "proxy", RUN_LABEL: "run-1"}
    assert template["metadata"]["annotations"] == {BROUGHT_UP: "stamp-1"}
    laid_over = proxy["spec"]["provider"]["kubernetes"]["envoyDeployment"]["patch"]["value"]
    assert laid_over["metadata"]["labels"] == {RUN_LABEL: "run-1"}
    envoy, manager = template["spec"]["containers"]
    assert envoy["resources"] == {"limits": {"cpu": "1"}} and envoy["image"].startswith("mirror.test/docker.io/envoyp")
    assert manager["image"] == controller["spec"]["template"]["spec"]["containers"][0]["image"]
    assert proxy["spec"]["provider"]["type"] == "Kubernetes" and "host" not in proxy["spec"]["provider"]
    manifests = load_variant("traefik-ingress").manifests
    assert objects.lay_over_for_cluster(manifests) is manifests, "a variant that says nothing of clusters"


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
    return find_entrypoint(api, objects, role, port)


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
    assert list_pod_addresses(api, objects, "proxy") == [("10.244.0.0", 80), ("10.244.0.1", 80)]
    assert list_pod_addresses(api, objects, "proxy", "https") == [("10.244.0.0", 443), ("10.244.0.1", 443)]


def test_a_cluster_ip_is_the_way_to_any_other_service_and_a_headless_one_leads_to_the_pod() -> None:
    objects = manifests("okd")
    backend = way(shown(objects), objects, "backend")
    assert backend.host.startswith("10.96.0.") and backend.port == 8080
    assert backend.words == "through the Service's cluster IP (kube-proxy's NAT on the client's node)"
    assert way(shown(objects), objects, "backend", "https").port == 8443
    found = way(shown(objects, clusterIP="None"), objects, "backend")
    assert (found.host, found.port, found.words) == ("10.244.0.7", 8080, "to the pod itself (a headless Service)")


def test_pod_and_host_are_entered_past_the_services_address_which_a_disturbance_needs() -> None:
    objects = manifests("pod-address")
    api: Any = shown(objects)
    assert (way(api, objects, "proxy").host, way(api, objects, "proxy").port) == ("10.244.0.7", 80)
    assert way(api, objects, "backend").host.startswith("10.96.0.")
    objects = manifests("okd-edge-hostnetwork")
    api = shown(objects)
    found = find_entrypoint(api, objects, "proxy", "https", lasting=True)
    assert found.host.startswith("10.96.0.")
    assert found.words.endswith("(kube-proxy's NAT on the client's node), not by the host port that its pods have")
    objects = manifests("okd-edge-hostnetwork")
    found = way(Shown(), objects, "proxy", "https")
    assert (found.host, found.port) == ("172.18.0.2", 8443)
    assert found.words == "to node 172.18.0.2, whose own ports the pod's are"


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
    services = [obj for obj in objects if obj["kind"] == "Service"]
    for obj in services:
        obj["metadata"]["namespace"] = "elsewhere"
    for found in (objects, [obj for obj in objects if obj not in services]):
        with pytest.raises(UsageError, match="Deployment/proxy: no Service selects the pods of the role proxy"):
            way(Shown(), found, "proxy")


def test_a_router_may_reload_until_its_interval_is_over() -> None:
    for variant, seconds in {"okd": 6, "reload-120s": 121, "okd-edge-hostnetwork": 6, "nginx": 0, "direct": 0}.items():
        assert compute_pending_s(load_variant(variant).manifests) == seconds
    daemons = [{**obj, "kind": "DaemonSet"} if obj["kind"] == "Deployment" else obj for obj in manifests("okd")]
    assert compute_pending_s(daemons) == 6 and way(shown(daemons), daemons, "proxy").port == 30000
