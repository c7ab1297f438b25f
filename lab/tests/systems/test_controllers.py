"""Contour and Envoy Gateway: objects as a controller is given them, what is read in its log, and what its image may be asked."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lab.base.errors import LabError, NotMeasurableError, UsageError
from lab.model.variants.variants import Variant, load_variant
from lab.systems import programs
from lab.systems.contour import system as contour
from lab.systems.envoy_gateway import system as envoy_gateway
from lab.systems.envoy_gateway.system import CONTROLLER, VERSION, ServingCheck, dump_yaml
from lab.systems.envoy_gateway.system import render_objects as given
from lab.systems.manifests import objects
from lab.systems.programs import Program
from lab.targets.apiserver import objects as api_objects
from lab.targets.apiserver.target import ApiserverTarget
from lab.targets.cluster.objects import rename_for_side
from lab.targets.local.kubelet import bringup
from lab.targets.local.sandbox.cpus import split
from lab.targets.local.target import LocalTarget
from lab.tests.support.factories import make_point
from lab.tests.support.inside import changed

PINNED = split([0, 1])
LOG = """\
time="2026-11-26T02:00:00Z" level=info msg="started status update handler" context=StatusUpdateHandler
time="2026-11-26T02:00:01Z" level=error msg="unresolved service reference" error="Service \\"nope\\" not found" name=bench
time="2026-11-26T02:00:02Z" level=warning msg="ignoring invalid ingress" name=other
time="2026-11-26T02:00:03Z" level=fatal msg="Contour server failed" error="no such thing"
E1126 02:00:04.560355       1 reflector.go:227] "Failed to watch" err="secrets is forbidden"
""".splitlines()


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs are there: what is asked of them is what is looked at."""
    there = Path("/bin/true")
    monkeypatch.setattr(programs, "provide_wheel_program", lambda place, name, version: Program(name, version, there))
    monkeypatch.setattr(
        programs, "provide_go_program", lambda place, name, module, version: Program(name, version, there)
    )


def vet(edit: Callable[[Any], object] = lambda containers: None) -> None:
    variant = changed("contour", lambda deployment: edit(deployment["spec"]["template"]["spec"]["containers"]))
    bringup.check_objects(objects.read_objects(api_objects.read(variant.manifests)), PINNED, ApiserverTarget().realise)


def test_its_log_is_told_in_its_words_and_each_side_of_a_pair_has_its_own_objects() -> None:
    assert contour.complaints([*LOG, *LOG]) == [
        'unresolved service reference: Service "nope" not found',
        "Contour server failed: no such thing",
        '"Failed to watch" err="secrets is forbidden"',
    ]
    assert contour.ignored(LOG) == ["ignoring invalid ingress"]
    manifests = load_variant("contour").manifests
    left, right = (
        {(o["kind"], str(o["metadata"])): o for o in rename_for_side(manifests, s)} for s in ("left", "right")
    )  # type: ignore[arg-type]
    assert not left.keys() & right.keys()
    (settings,) = [obj for (kind, _), obj in right.items() if kind == "ContourConfiguration"]
    assert settings["spec"]["ingress"]["classNames"] == ["ingress-lab-right"]
    names = [obj["metadata"]["name"] for obj in api_objects.definitions(right.values())]
    assert "contourconfigurations.projectcontour.io" in names and all("contour" in name for name in names)


def test_elsewhere_it_is_refused_with_the_target_that_can_before_anything_is_built() -> None:
    for target in ("local", "kind"):
        with pytest.raises(NotMeasurableError) as caught:
            load_variant("contour-log-off").refuse_on(target)
        assert caught.value.remedy == "add --target apiserver"
    with pytest.raises(NotMeasurableError, match="contour: needs a controller: not measurable"):
        LocalTarget().check_variant(load_variant("contour"), [make_point()])


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda containers: containers[1].update(command=["sh"]), "expected the command contour"),
        (lambda containers: containers[1].update(args=["bootstrap"]), "serve as the first argument"),
        (lambda containers: containers[1].update(image="ghcr.io/projectcontour/contour"), "names no version"),
        (lambda containers: containers.pop(1), "no controller is in its pod"),
        (lambda containers: containers[0]["args"].extend(["--concurrency", "2"]), "asks for 2 workers"),
        (lambda containers: containers[0]["args"].extend(["--concurrency", "all"]), "expected a positive number"),
    ],
)
def test_what_cannot_be_honoured_is_refused(edit: Any, fault: str) -> None:
    vet()
    with pytest.raises(LabError, match=fault):
        vet(edit)


def test_a_version_that_is_not_pinned_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program of another version is there, and building brings it again."""
    (tmp_path / "contour").touch()
    monkeypatch.setattr(programs, "BUILT", tmp_path)
    monkeypatch.setattr(programs, "read_module_version", lambda *_: "1.0.0")
    monkeypatch.setattr(programs, "run_outside", lambda *_: 0)
    with pytest.raises(UsageError, match="is asked for"):
        programs.provide_go_program("here", "contour", contour.MODULE, "1.33.8")


ADDRESS = "10.64.0.3"


def read(variant: Variant | str = "envoy-gateway") -> objects.Objects:
    return objects.read_objects((load_variant(variant) if isinstance(variant, str) else variant).manifests)


def of(kind: str, variant: Variant | str = "envoy-gateway") -> list[dict[str, Any]]:
    found = read(variant)
    made = given(found, CONTROLLER, {pod.name: ADDRESS for pod in found.pods})
    return [each for each in made if each["kind"] == kind]


def test_a_service_s_pods_and_a_certificate_are_where_the_controller_looks_for_them() -> None:
    """Policies are given as they are, and the class that is the controller's, without what is the lab's own."""
    (backend,), (route,) = of("Backend"), of("HTTPRoute")
    assert backend["spec"]["endpoints"] == [{"ip": {"address": ADDRESS, "port": 8080}}]
    (rule,) = route["spec"]["rules"]
    to = {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": backend["metadata"]["name"]}
    assert rule["backendRefs"] == [to] and route["spec"]["hostnames"] == ["bench.lab.test"]
    (policy,) = of("BackendTrafficPolicy", "envoy-gateway-circuit-breakers")
    assert policy["spec"]["circuitBreaker"]["maxConnections"] == 65536
    assert [each["spec"]["controllerName"] for each in of("GatewayClass")] == [CONTROLLER]
    assert not of("Deployment") and not of("ConfigMap")
    (secret,) = of("Secret", "envoy-gateway-equal")
    assert b64decode(secret["data"]["tls.crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
    assert "stringData" not in secret


def test_a_rule_s_name_is_its_version_and_a_name_of_its_own_stays() -> None:
    def names(edit: Callable[[dict[str, Any]], object]) -> set[str]:
        variant = changed("envoy-gateway", lambda route: edit(route["spec"]), "HTTPRoute", "bench")
        return {rule["name"] for each in of("HTTPRoute", variant) for rule in each["spec"]["rules"]}

    shipped, other = names(lambda _: None), names(lambda spec: spec.update(hostnames=["other.lab.test"]))
    assert shipped != other and all(name.startswith(VERSION) for name in shipped | other)
    assert names(lambda spec: spec["rules"][0].update(name="mine")) == {"mine"}


def dump(versions: list[str], endpoints: list[tuple[str, int]]) -> Any:
    """As /config_dump?include_eds has it, of what matters."""
    resources = [[{"kind": "HTTPRoute", "sectionName": name}] for name in versions]
    routes = [{"metadata": {"filter_metadata": {"envoy-gateway": {"resources": each}}}} for each in resources]
    sockets = [{"socket_address": {"address": address, "port_value": port}} for address, port in endpoints]
    found = {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket}} for socket in sockets]}]}
    table = {"route_config": {"virtual_hosts": [{"routes": routes}]}}
    return {
        "configs": [
            {"@type": "x.RoutesConfigDump", "dynamic_route_configs": [table]},
            {"@type": "x.EndpointsConfigDump", "dynamic_endpoint_configs": [{"endpoint_config": found}]},
        ]
    }


def test_it_serves_a_file_when_it_has_its_rules_and_endpoints() -> None:
    """Envoy is looked at again only when it has taken something."""
    found, looks = read(), list[str]()
    text = dump_yaml(given(found, CONTROLLER, {pod.name: ADDRESS for pod in found.pods}))
    name = next(each for each in yaml.safe_load_all(text) if each["kind"] == "HTTPRoute")["spec"]["rules"][0]["name"]
    for version, port, serves in ((name, 8080, True), ("lab-older", 8080, False), (name, 8081, False)):
        assert ServingCheck().these(text, "1", lambda it=(version, port): dump([it[0]], [(ADDRESS, it[1])])) is serves
    server = ServingCheck()

    def look() -> Any:
        looks.append("look")
        return dump([], [])

    assert [server.these(text, versions, look) for versions in ("1", "1", "2")] == [False] * 3 and len(looks) == 2


def test_what_its_objects_have_not_is_refused_before_it_starts() -> None:
    """The controller itself would serve nothing, and say why in its log alone."""
    variant = changed("envoy-gateway", lambda each: each["spec"].update(provider={"type": "Host"}), "EnvoyProxy")
    with pytest.raises(UsageError, match="envoyVersion: is missing"):
        envoy_gateway._provide_envoy(context_of(variant))  # pyright: ignore[reportPrivateUsage]
    breaker, kind = {"maxConnectios": 65536}, "BackendTrafficPolicy"
    variant = changed("envoy-gateway-circuit-breakers", lambda each: each["spec"].update(circuitBreaker=breaker), kind)
    with pytest.raises(UsageError, match=r"BackendTrafficPolicy/proxy: /spec/circuitBreaker: .*maxConnectios"):
        envoy_gateway._refuse(context_of(variant))  # pyright: ignore[reportPrivateUsage]


def context_of(variant: Variant) -> Any:
    return SimpleNamespace(objects=read(variant), cpus=2)
