"""Manifests → what the local target starts: what it honours, and that nothing else passes. Starts nothing."""

from __future__ import annotations

import copy
import resource
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from lab.base.errors import NotMeasurableError, UsageError
from lab.model.endpoint import Role
from lab.model.variants.variants import covering_names, load_overlay, load_variant
from lab.records.sweep_files import load_sweep
from lab.systems.manifests import objects
from lab.targets.local.control_plane import services
from lab.targets.local.kubelet import bringup
from lab.targets.local.sandbox.cpus import split
from lab.targets.local.target import LocalTarget
from lab.tests.support.factories import make_point

PINNED = split([0, 1])


def vet(
    edit: Callable[[dict[str, Any]], object],
    kind: str = "Deployment",
    of: str = "proxy",
    name: str = "baseline",
    pinned: Mapping[Role, frozenset[int]] = PINNED,
) -> objects.Objects:
    manifests = copy.deepcopy(list(load_variant(name).manifests))
    (found,) = [item for item in manifests if item["kind"] == kind and item["metadata"]["name"] == of]
    edit(found)
    wanted = objects.read_objects(manifests)
    bringup.check_objects(wanted, pinned)
    return wanted


def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    return deployment["spec"]["template"]["spec"]


def first(deployment: dict[str, Any]) -> dict[str, Any]:
    return pod(deployment)["containers"][0]


# Every day the systems as shipped, and in `--all` every overlay and component.
ALL = [pytest.param(name, marks=[pytest.mark.slow] * bool(load_overlay(name).baseline)) for name in covering_names()]


@pytest.mark.parametrize("name", ALL)
def test_every_overlay_is_honoured_whole(name: str) -> None:
    variant = load_variant(name)
    points = load_sweep(variant.sweep)[1].load_points if variant.sweep else []
    changing = any(point.disturbance is not None for point in points)
    with suppress(NotMeasurableError):
        variant.refuse_on("local")
        wanted = services.add_node_nat(objects.read_objects(variant.manifests), changing)
        assert wanted.role("backend")
        bringup.check_objects(wanted, PINNED)


def test_a_pod_knows_its_name_and_namespace() -> None:
    wanted = vet(lambda item: item["spec"].update(replicas=2), of="backend")
    assert [item.name for item in wanted.role("backend")] == ["backend-0", "backend-1"]
    (proxy,) = wanted.role("proxy")
    (container,) = proxy.containers
    assert container.env["POD_NAME"] == "proxy-0" and container.repository == "registry.k8s.io/ingress-nginx/controller"
    assert f"--configmap={proxy.namespace}/ingress-nginx-controller" in container.args


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda item: pod(item)["containers"].append({"name": "prxy", "resources": {"requests": {}}}), "containers[prxy]: 'image' is missing"),
        (lambda item: pod(item)["containers"].append(dict(first(item))), "two containers are called 'proxy'"),
        (lambda item: first(item).update(volumeMount=[]), "containers[proxy].volumeMount: the local target does not honour this field\n  did you mean 'volumeMounts'?"),
        (lambda item: first(item)["livenessProbe"].update(exec={"command": ["x"]}), "expected one of httpGet, tcpSocket, exec"),
        (lambda item: first(item)["livenessProbe"].update(periodSeconds=0), "periodSeconds: expected a positive integer, got 0"),
        (lambda item: first(item)["livenessProbe"].update(timeoutSeconds="5"), "timeoutSeconds: expected an integer, got '5'"),
        (lambda item: first(item)["livenessProbe"]["httpGet"].update(port="htp"), "no container port is called 'htp'\n  did you mean 'http'?"),
        (lambda item: first(item)["livenessProbe"]["httpGet"].update(scheme="HTTPS"), "probes HTTP only"),
        (lambda item: first(item)["args"].append("--enable-ssl-passthrough"), "does not honour --enable-ssl-passthrough"),
        (lambda item: first(item)["args"].__setitem__(3, "--controller-class=k8s.io/other"), "it would serve no route"),
        (lambda item: first(item).update(args=["/nginx-ingress-controller", "--controller-class=k8s.io/ingress-lab"]), "--configmap is missing"),
        (lambda item: first(item)["lifecycle"]["preStop"]["exec"].update(command=["sleep", "5"]), "cannot be run here"),
        (lambda item: first(item).update(command=["nginx"]), "expected no command"),
        (lambda item: first(item).update(image="docker.io/library/nginx:1.28.0-alpine", command=["nginks"]), "the program 'nginks' is not on this machine"),
        (lambda item: first(item).update(image="docker.io/other/thing:1", args=[]), "'command' is missing"),
        (lambda item: first(item).update(volumeMounts=[{"name": "nope", "mountPath": "/srv/x"}]), "there is no volume 'nope'"),
        (lambda item: pod(item).update(volumes=[{"name": "s", "secret": {"secretName": "x"}}]), "volume s: there is no Secret 'x'"),
        (lambda item: pod(item).update(volumes=[{"name": "c", "configMap": {"name": "bakend"}}]), "there is no ConfigMap 'bakend'\n  did you mean 'backend'?"),
        (lambda item: pod(item).update(volumes=[{"name": "c", "configMap": {"name": "backend", "items": [{"key": "x", "path": "y"}]}}]), "Deployment/proxy: volume c: items: ConfigMap backend has no key 'x'"),
        (lambda item: pod(item).update(volumes=[{"name": "e", "emptyDir": {"sizeLimit": "1Gi"}}]), "emptyDir.sizeLimit: the local target limits volumes in memory only"),
        (lambda item: pod(item).update(volumes=[{"name": "e", "emptyDir": {"medium": "Memory", "sizeLimit": "1GB"}}]), "emptyDir.sizeLimit: expected a quantity"),
        (lambda item: first(item).update(resources={"limits": {"cu": "1"}}), "spec.template.spec.containers[proxy].resources.limits: there is no resource 'cu'\n  did you mean 'cpu'?"),
        (lambda item: pod(item)["securityContext"].update(seccompProfile={"tye": "RuntimeDefault"}), "securityContext.seccompProfile: 'type' is missing"),
        (lambda item: pod(item).update(nodeSelector={"kubernetes.io/o": "linux"}), "spec.nodeSelector: no node here has the label kubernetes.io/o=linux"),
        (lambda item: item["spec"]["selector"]["matchLabels"].update(ap="x"), "spec.selector.matchLabels: selects pods with ap=x, and its own have none"),
        (lambda item: pod(item).update(hostNetwork="yes"), "spec.hostNetwork: expected true or false"),
        (lambda item: pod(item).update(hostNetwork=True), "no Service of type LoadBalancer is in front"),
        (lambda item: pod(item).update(hostNetwork=True, securityContext={"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}), "spec.hostNetwork: a kubelet refuses pod sysctls (net.core.somaxconn) with hostNetwork"),
        (lambda item: (first(item).update(securityContext={"privileged": True}), pod(item).update(hostNetwork=True)), "spec.hostNetwork: the privileged container proxy would write to the node's own network"),
        (lambda item: pod(item)["securityContext"].update(sysctls=[{"name": "fs.file-max", "value": "1"}]), "'fs.file-max' is the node's, not a pod's"),
        (lambda item: pod(item)["securityContext"].update(sysctls=[{"name": "net/../kernel.x", "value": "1"}]), "is the node's"),
        (lambda item: pod(item)["securityContext"].update(sysctls=[{"name": "net.core.somaxconn", "value": 128}]), "value: expected a string, got 128"),
        (lambda item: pod(item).update(containers=[]), "'containers' is empty"),
        (lambda item: pod(item).update(restartPolicy="Never"), "restart always"),
        (lambda item: item["spec"].update(replicas=2), "nothing balances over them here"),
        (lambda item: item["spec"].update(replicas=-1), "expected 0 to 200, got -1"),
        (lambda item: item["spec"]["template"]["metadata"]["labels"].pop("lab/role"), "expected proxy, backend or balancer"),
        (lambda item: item["spec"].update(template="x"), "expected a mapping, got 'x'"),
    ],
)  # fmt: skip
def test_a_deployment_not_honoured_whole_is_refused(edit: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        vet(edit)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "of", "edit", "message"),
    [
        ("Ingress", "bench", lambda item: item["spec"].update(ingressClassName="nginx"), "no IngressClass is called 'nginx'"),
        ("Ingress", "bench", lambda item: item["spec"].update(tls=[{"hosts": ["bench.lab.test"], "secretName": "none"}]), "there is no Secret 'none'"),
        ("Ingress", "bench", lambda item: item["metadata"].update(annotations={"nginx.ingress.kubernetes.io/limit-rps": "1"}), "does not honour nginx.ingress.kubernetes.io/limit-rps"),
        ("Ingress", "bench", lambda item: item["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"].update(name="bakend"), "did you mean 'backend'?"),
        ("Ingress", "bench", lambda item: item["spec"]["rules"][0]["http"]["paths"][0].update(pathType="ImplementationSpecific"), "expected Prefix or Exact"),
        ("Service", "backend", lambda item: item["spec"].update(selector={"lab/role": "bckend"}), "matches no pod"),
        ("Service", "backend", lambda item: item["spec"]["ports"][0].update(targetPort="htp"), "no container port is called 'htp'"),
        ("Service", "backend", lambda item: item["spec"].update(clusterIP="None"), "spec.clusterIP: the local target does not honour"),
        ("ConfigMap", "ingress-nginx-controller", lambda item: item.update(data={"use-gzip": True}), 'expected a string, got True\n  write it in quotes: "true"'),
        ("ConfigMap", "ingress-nginx-controller", lambda item: item.update(data={"use-gzp": "true"}), "did you mean 'use-gzip'?"),
        ("Ingress", "bench", lambda item: item.update(kind="TCPRoute"), "does not know objects of kind TCPRoute"),
    ],
)  # fmt: skip
def test_other_objects_are_refused(kind: str, of: str, edit: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        vet(edit, kind, of)
    assert message in str(raised.value)


def of_controller(key: str, value: str) -> Callable[[dict[str, Any]], object]:
    return lambda item: item.setdefault("data", {}).update({key: value})


def of_file(text: str) -> Callable[[dict[str, Any]], object]:
    return lambda item: item["data"].update({"nginx.conf": f"{text}\nevents {{}}\n"})


CONTROLLER, FILE = (
    "ConfigMap/ingress-nginx-controller: worker-processes",
    "ConfigMap/nginx: nginx.conf: worker_processes",
)


def test_more_workers_than_cpus_and_a_setting_of_the_machine_are_not_measurable() -> None:
    for name, of, edit, place in (
        ("baseline", "ingress-nginx-controller", of_controller("worker-processes", "8"), CONTROLLER),
        ("nginx", "nginx", of_file("# comment\nworker_processes  8;"), FILE),
    ):
        with pytest.raises(NotMeasurableError) as raised:
            vet(edit, "ConfigMap", of, name)
        assert f"{place}: asks for 8 workers, the proxy has 1 CPU here: not measurable: cores" in str(raised.value)
        vet(edit, "ConfigMap", of, name, pinned=split(range(16)))
    with pytest.raises(NotMeasurableError, match="fs.file-max is the whole machine's.*asks for 1048576") as raised:
        bringup.check_objects(objects.read_objects(load_variant("baseline+file-max-1048576").manifests), PINNED)
    assert raised.value.what == "host-wide"


def test_more_open_files_than_a_container_may_have_are_not_measurable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, of, edit in (
        ("baseline", "ingress-nginx-controller", of_controller("max-worker-open-files", "65536")),
        ("nginx", "nginx", of_file("  worker_rlimit_nofile 65536;")),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 65535))
        with pytest.raises(NotMeasurableError, match="asks for 65536 open files, a container may have 65535 here"):
            vet(edit, "ConfigMap", of, name)
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 65536))
        vet(edit, "ConfigMap", of, name)


def test_a_point_that_cannot_be_served_is_refused_beforehand() -> None:
    target, variant = LocalTarget(), load_variant("baseline")
    assert target.check_variant(variant, [make_point()])["rate-1000"].hosts == ("bench.lab.test",)
    behind = target.check_variant(load_variant("okd-passthrough"), [make_point(routes="all")])["rate-1000"]
    assert (behind.base_url, behind.tls, len(behind.hosts)) == (f"https://{behind.host}", "passthrough", 100)
    with pytest.raises(UsageError, match="the variant.s routes have none"):
        target.check_variant(variant, [make_point(), make_point(name="edge", tls="edge")])
    with pytest.raises(UsageError, match="asks for 2 routes, the variant has 1"):
        target.check_variant(variant, [make_point(routes=2)])


def test_cpus_are_shared_out_by_role() -> None:
    for cpus, proxy, generator, backend in (
        ([0, 1], {0}, {1}, {1}),
        ([0, 1, 2], {0}, {1}, {2}),
        ([0, 4, 1, 5], {0, 4}, {1}, {5}),
        (list(range(8)), {0, 1, 2, 3}, {4, 5}, {6, 7}),
        (list(range(9)), {0, 1, 2, 3}, {4, 5}, {6, 7, 8}),
    ):
        assert split(cpus) == {"proxy": proxy, "generator": generator, "backend": backend, "lab": backend}
        with pytest.raises(UsageError, match="needs two CPUs"):
            split(cpus[:1])
