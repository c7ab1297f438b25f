"""What sets a knob on OpenShift. The commands were run against the CRD of openshift/api (2a3d739) on Kubernetes 1.34."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml

from lab.base.errors import UsageError
from lab.model.variants import kustomize, openshift
from lab.model.variants.knobs import MANIFESTS, Knob, knob_names, load_knob
from lab.model.variants.variants import config_snippet, load_variant

KNOBS = [knob for knob in map(load_knob, knob_names()) if knob.study == "okd"]
WITH = [knob for knob in KNOBS if knob.openshift]
CONTROLLER = {
    "apiVersion": "operator.openshift.io/v1",
    "kind": "IngressController",
    "metadata": {"name": "default", "namespace": "openshift-ingress-operator"},
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "router-default", "namespace": "openshift-ingress"},
}


def controller(**spec: Any) -> dict[str, Any]:
    return {**CONTROLLER, "spec": spec}


def deployment(**container: Any) -> dict[str, Any]:
    return {**DEPLOYMENT, "spec": {"template": {"spec": {"containers": [{"name": "router", **container}]}}}}


def patch_of(command: str) -> dict[str, Any]:
    words = shlex.split(command)
    return json.loads(words[words.index("-p") + 1])


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_every_knob_of_the_study_has_a_form_or_is_about_routes(knob: Knob) -> None:
    content = kustomize.read_yaml(MANIFESTS / "components" / knob.name / "kustomization.yaml", "")
    kinds = {patch.get("target", {}).get("kind") for patch in content.get("patches", [])}
    assert bool(knob.openshift) != (kinds <= {"Route"})


@pytest.mark.parametrize("knob", WITH, ids=lambda knob: knob.name)
def test_the_form_says_what_is_read_back(knob: Knob) -> None:
    found: set[str] = set()
    for patch in knob.openshift:
        text = json.dumps(patch["spec"])
        found |= set(re.findall(r'"(?:threadCount|reloadInterval|timeoutSeconds|cpu)": "?(\w+)', text))
        found |= {"true"} & {str("HostNetwork" in text).lower()}
        found |= {str(len(knob.openshift))} if "routeSelector" in text else set()
    assert found == {check.value for check in knob.readback}


@pytest.mark.parametrize(
    ("variant", "command"),
    [
        ("okd-threads-4", """patch ingresscontroller/default --type=merge -p '{"spec":{"tuningOptions":{"threadCount":4}}}'"""),
        ("reload-15s", """patch ingresscontroller/default --type=merge -p '{"spec":{"tuningOptions":{"reloadInterval":"15s"}}}'"""),
    ],
)  # fmt: skip
def test_an_operators_field_is_a_merge_patch_of_the_ingresscontroller(variant: str, command: str) -> None:
    first, *commands = config_snippet(load_variant(variant)).splitlines()
    assert first == f"# {openshift.FOOTNOTE}" and commands == [f"oc -n openshift-ingress-operator {command}"]


@pytest.mark.parametrize(
    ("variant", "container", "commands"),
    [
        ("okd-probes-5s", {"livenessProbe": {"timeoutSeconds": 5}, "readinessProbe": {"timeoutSeconds": 5}}, 1),
        ("okd+okd-threads-4+okd-reload-interval-60s+proxy-cpu-150m", {"resources": {"limits": {"cpu": "150m"}}}, 2),
    ],
)
def test_what_is_of_the_pod_is_a_strategic_patch_of_the_deployment(
    variant: str, container: dict[str, Any], commands: int
) -> None:
    *others, last = [line for line in config_snippet(load_variant(variant)).splitlines() if line[0] != "#"]
    assert last.startswith("oc -n openshift-ingress patch deployment/router-default --type=strategic -p ")
    assert patch_of(last) == {"spec": {"template": {"spec": {"containers": [{"name": "router"} | container]}}}}
    fields = [patch_of(line) for line in others]
    assert fields == [{"spec": {"tuningOptions": {"threadCount": 4, "reloadInterval": "60s"}}}] * (commands - 1)


def test_the_host_network_makes_the_ingresscontroller_anew() -> None:
    _, warning, command = config_snippet(load_variant("okd-hostnetwork")).splitlines()
    assert warning.startswith("# ") and "cannot be updated" in warning
    assert "get ingresscontroller/default -o json | oc patch --local -f -" in command
    assert command.endswith(" -o json | oc replace --force --wait -f -")
    assert patch_of(command) == {"spec": {"endpointPublishingStrategy": {"type": "HostNetwork", "loadBalancer": None}}}


def test_a_knob_without_a_form_stays_a_patch_beside_the_commands() -> None:
    """As a patch of what it changes only: the other knob's environment variable would be reverted by the operator."""
    snippet = config_snippet(load_variant("okd+okd-threads-4+somaxconn-4096"))
    commands, *patches = snippet.split("---\n")
    assert "threadCount" in commands and "ROUTER_THREADS" not in "".join(patches)
    (patch,) = map(yaml.safe_load, patches)
    assert patch["metadata"]["name"] == "router-default"
    assert "net.core.somaxconn=4096" in json.dumps(patch)
    routes = list(yaml.safe_load_all(config_snippet(load_variant("okd-edge"))))
    assert len(routes) == 100 and all(route["spec"]["tls"]["termination"] == "edge" for route in routes)


def test_two_patches_that_contradict_each_other_are_refused() -> None:
    patches = [controller(tuningOptions={"threadCount": count}) for count in (2, 4)]
    with pytest.raises(UsageError, match=r"IngressController\.spec\.tuningOptions\.threadCount: set to 2 and to 4"):
        openshift.commands(patches)
    probes = [deployment(livenessProbe={"timeoutSeconds": 5}), deployment(readinessProbe={"timeoutSeconds": 3})]
    (command,) = openshift.commands(probes)
    (container,) = patch_of(command)["spec"]["template"]["spec"]["containers"]
    assert container.keys() == {"name", "livenessProbe", "readinessProbe"}


@pytest.mark.parametrize(
    "patch",
    [{"kind": "Route"}, "text", {**CONTROLLER, "kind": "Deployment"}, DEPLOYMENT, {**controller(), "apiVersion": "v1"}],
)
def test_a_patch_of_anything_else_is_refused(patch: object) -> None:
    with pytest.raises(UsageError, match="x: lab/openshift: expected the spec of an IngressController or a Deployment"):
        openshift.check_patches([patch], "x: lab/openshift")
    assert openshift.check_patches((), "x") == () and openshift.snippet(()) == ""
