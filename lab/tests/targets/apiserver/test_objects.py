"""What the API server is given: each side's objects under their own names, pods and EndpointSlices as controllers write them."""

from __future__ import annotations

from lab.model.variants.variants import load_variant
from lab.systems.manifests.objects import Endpoint, Service, read_objects
from lab.targets.apiserver import objects
from lab.targets.cluster.objects import rename_for_side


def test_both_sides_have_the_same_pods_of_their_deployments_templates() -> None:
    manifests = load_variant("baseline").manifests
    left, right = (read_objects(objects.read(rename_for_side(manifests, side))) for side in ("left", "right"))
    assert [pod.name for pod in left.pods] == [pod.name for pod in right.pods] == ["backend-0", "proxy-0"]
    assert {pod.namespace for pod in right.pods} == {"ingress-lab-right"}
    pod = objects.make_pod(load_variant("baseline").manifests, "proxy", "proxy-0")
    assert pod["metadata"]["name"] == "proxy-0" and pod["metadata"]["namespace"] == "ingress-lab"
    assert pod["metadata"]["labels"]["lab/role"] == "proxy"
    assert pod["spec"]["nodeName"] == objects.NODE and pod["spec"]["serviceAccountName"] == "ingress-nginx"


def test_an_annotation_that_only_the_controller_knows_is_its_own_affair() -> None:
    manifests = [dict(obj) for obj in load_variant("baseline").manifests]
    for obj in manifests:
        if obj["kind"] == "Ingress":
            obj["metadata"] = {**obj["metadata"], "annotations": {"nginx.ingress.kubernetes.io/canary": "true"}}
    assert read_objects(objects.read(manifests)).role("proxy")


def test_a_slice_has_the_ready_endpoints_of_each_port_and_none_is_made_without_a_selector() -> None:
    service = Service("backend", {"lab/role": "backend"}, {8080: "http", "http": "http"}, names={8080: "http"})
    (made,) = objects.slices(
        service, "n", {8080: [Endpoint("10.64.0.3", 8080, "backend-0"), Endpoint("10.64.0.5", 8080)]}
    )
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "backend"
    assert [endpoint["addresses"] for endpoint in made["endpoints"]] == [["10.64.0.3"], ["10.64.0.5"]]
    assert made["ports"] == [{"name": "http", "protocol": "TCP", "port": 8080}]
    (empty,) = objects.slices(service, "n", {8080: []})
    assert empty["endpoints"] == [] and empty["ports"] == []
    assert list(objects.slices(Service("by-hand", {}, {80: 80}), "n", {80: []})) == []
