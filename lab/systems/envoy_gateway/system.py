"""Envoy Gateway itself in its standalone mode: the controller reads Gateway API and its own objects from a file and runs an Envoy beside itself.

    HTTPRoute bench → Service backend:8080 (pod 10.0.0.2)
        →  HTTPRoute bench → Backend backend-8080, Backend backend-8080 = [10.0.0.2:8080]

What it takes is the manifests' own objects, in one file that it watches. From files it knows no EndpointSlices: what a Service leads to becomes a
`Backend` of its own kind, with the addresses of the pods that are ready. A Service without any has none, and its route answers 500 where a cluster's
answers 503. Its process is the control plane, its Envoy, a child of it, the proxy. Refuses an EnvoyProxy that names no version of Envoy: it would fetch one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import yaml

from lab.base.errors import UsageError
from lab.base.paths import at
from lab.systems import programs
from lab.systems.envoy import system as envoy
from lab.systems.manifests.objects import Objects
from lab.systems.renewing import WatchedFiles
from lab.systems.system import (
    Context,
    Process,
    ProxySystem,
    Realisation,
    Workers,
    expect,
    refuse_workers,
    within_down,
)

GROUP = "gateway.envoyproxy.io"
KINDS = frozenset(
    {
        "EnvoyProxy",
        "ClientTrafficPolicy",
        "BackendTrafficPolicy",
        "SecurityPolicy",
        "EnvoyExtensionPolicy",
        "EnvoyPatchPolicy",
        "HTTPRouteFilter",
        "BackendTLSPolicy",
    }
)
"""Of its own, which it reads beside Gateway API's."""
VERSION = "lab-"
"""How the names begin that rules are given here: Envoy shows them in its routes' metadata, and so which version of a rule it serves. (From a
file the controller takes no annotations, which it would show as well.)"""

Manifest = dict[str, Any]


def objects(found: Objects, controller: str, addresses: Mapping[str, str]) -> list[Manifest]:
    """All that it reads, in a fixed order. UsageError for a Secret that is not there, or a class that is no one's."""
    ports = found.served(controller)
    classes = [name for name, whose in found.gateway_classes.items() if whose == controller]
    gateways = [each for each in found.gateways if each.class_name in classes]
    namespaces = dict.fromkeys([each.namespace for each in (*gateways, *found.http_routes)])
    secrets = dict.fromkeys(name for port in ports for name in port.secrets)
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass"}
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces),
        *({**kind, "metadata": {"name": name}, "spec": {"controllerName": controller}} for name in classes),
        *(dict(each.manifest) for each in gateways),
        *(_secret(found, name, gateways[0].namespace) for name in secrets),
        *map(dict, found.others),
        *_backends(found, addresses),
        *(_route(each.manifest) for each in found.http_routes),
    ]


def written(manifests: Sequence[Manifest]) -> str:
    return yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True)


def _secret(found: Objects, name: str, namespace: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    files = found.certificate(name, "Gateway: spec.listeners")
    # It leaves stringData as it is, and looks for a certificate in data alone.
    pair = {key: base64.b64encode(files[key].encode()).decode() for key in ("tls.crt", "tls.key") if key in files}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": pair}


def _backends(found: Objects, addresses: Mapping[str, str]) -> Iterator[Manifest]:
    led_to = [(route.namespace, rule.backend) for route in found.http_routes for rule in route.rules if rule.backend]
    for namespace, backend in dict.fromkeys(led_to):
        members = found.members(backend.service, backend.port, addresses)
        if members:
            metadata = {"name": f"{backend.service}-{backend.port}", "namespace": namespace}
            endpoints = [{"ip": {"address": member.address, "port": member.port}} for member in members]
            kind = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Backend"}
            yield {**kind, "metadata": metadata, "spec": {"endpoints": endpoints}}


def _route(raw: Mapping[str, Any]) -> Manifest:
    """To Backends instead of Services; rules without a name of their own are named after their version."""
    route = deepcopy(dict(raw))
    for place, rule in enumerate(route["spec"].setdefault("rules", [{}])):
        for reference in rule.get("backendRefs", []):
            name = f"{reference['name']}-{reference.pop('port')}"
            reference.update(group=GROUP, kind="Backend", name=name)
        said = json.dumps([route["metadata"]["name"], place, route["spec"].get("hostnames"), rule], sort_keys=True)
        rule.setdefault("name", VERSION + hashlib.sha256(said.encode()).hexdigest()[:12])
    return route


@dataclass(slots=True)
class Serves:
    """Remembers what Envoy had taken when it was last looked at."""

    seen: tuple[str, str] = ("", "")

    def these(self, text: str, versions: str, dump: Callable[[], Any]) -> bool:
        """Whether Envoy serves the objects of a file. `versions`: what it says it has taken; `dump`: its configuration, endpoints included."""
        if self.seen == (text, versions):
            return False
        wanted = list(yaml.safe_load_all(text))
        found = dump()
        self.seen = (text, versions)
        rules = [rule for each in wanted if each["kind"] == "HTTPRoute" for rule in each["spec"]["rules"]]
        ends = [item["ip"] for each in wanted if each["kind"] == "Backend" for item in each["spec"]["endpoints"]]
        wanted_versions = {rule["name"] for rule in rules if rule["name"].startswith(VERSION)}
        wanted_ends = {(item["address"], item["port"]) for item in ends}
        return _versions(found) == wanted_versions and _endpoints(found) == wanted_ends


def _parts(dump: Any, kind: str) -> Iterator[Any]:
    return (config for config in dump["configs"] if config["@type"].endswith(f".{kind}"))


def _versions(dump: Any) -> set[str]:
    """Of all rules that are served."""
    configs = [item for part in _parts(dump, "RoutesConfigDump") for item in part.get("dynamic_route_configs", [])]
    hosts = (host for item in configs for host in item["route_config"].get("virtual_hosts", []))
    metadata = (route.get("metadata", {}).get("filter_metadata", {}) for host in hosts for route in host["routes"])
    sources = (source for item in metadata for source in item.get("envoy-gateway", {}).get("resources", []))
    return {name for source in sources if (name := source.get("sectionName", "")).startswith(VERSION)}


def _endpoints(dump: Any) -> set[tuple[str, int]]:
    """Of the clusters that routes lead to."""
    configs = [
        item for part in _parts(dump, "EndpointsConfigDump") for item in part.get("dynamic_endpoint_configs", [])
    ]
    localities = (each for item in configs for each in item["endpoint_config"].get("endpoints", []))
    endpoints = (endpoint["endpoint"] for each in localities for endpoint in each.get("lb_endpoints", []))
    addresses = (each["address"]["socket_address"] for each in endpoints)
    return {(each["address"], each["port_value"]) for each in addresses}


CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
MODULE = "github.com/envoyproxy/gateway"
HOME = "/srv/envoy-gateway"
OBJECTS = f"{HOME}/resources/objects.yaml"


def realise(context: Context) -> Realisation:
    container = context.container
    held = not container.command and container.args[:1] == ("server",)
    expect(container, held, "no command, and server as the first argument", "envoy-gateway")
    _refuse(context)
    controller = programs.built(container.place, "envoy-gateway", MODULE, programs.tagged(container))
    data_plane = _envoy(context)
    run = shlex.join((controller.inside, *container.args))
    # What its standalone mode wants before its first start: the certificates between it and its Envoy.
    certificates = shlex.join((controller.inside, "certgen", "--local", "--config-home", f"{HOME}/config"))
    return Realisation(
        command=("sh", "-c", f"{certificates} && exec {run}"),
        env=container.env,
        files={OBJECTS: written(objects(context.objects, CONTROLLER, context.addresses))},
        programs={
            controller.inside: controller.file,
            f"{HOME}/data/envoy-versions/{data_plane.version}/bin/envoy": data_plane.file,
        },
        about=f"{controller.about}, {data_plane.about}",
    )


def _refuse(context: Context) -> None:
    """UsageError for a field that its objects have not: the controller would write that into its log, and serve nothing."""
    from lab.model.variants.schemas import refused  # longer to import than all else here

    for raw in context.objects.others:
        if told := refused(raw):
            raise UsageError(
                f"{raw['kind']}/{raw['metadata']['name']}", told, "correct it: manifests/schemas has its fields"
            )


def _envoy(context: Context) -> programs.Program:
    for raw in (each for each in context.objects.others if each["kind"] == "EnvoyProxy"):
        place = f"EnvoyProxy/{raw['metadata']['name']}: spec"
        workers = at(raw, "spec.concurrency")
        if isinstance(workers, int):
            refuse_workers(f"{place}.concurrency", workers, context)
        if version := at(raw, "spec.provider.host.envoyVersion"):
            return programs.program(f"{place}.provider.host.envoyVersion", "envoy", str(version))
    place = "EnvoyProxy: spec.provider.host.envoyVersion"
    raise UsageError(place, "is missing: it would fetch an Envoy of its own choice", "name one that is pinned here")


def control(process: Process) -> WatchedFiles:
    serves = Serves()

    def served(files: Mapping[str, str]) -> bool:
        """Whether its Envoy has the routes and endpoints of the file. Its whole configuration is looked at only when it has taken another."""
        told = process.ask(envoy.PORT, envoy.VERSIONS)
        page = f"{envoy.DUMP}?include_eds"
        return serves.these(files[OBJECTS], told, lambda: json.loads(process.ask(envoy.PORT, page)))

    return WatchedFiles(process, "envoy-gateway", lambda path: path == OBJECTS, served)


SYSTEM = ProxySystem(
    name="envoy-gateway",
    image="envoyproxy/gateway",
    realise=realise,
    note="routes and endpoints change by a file that the controller watches; Services' pods are Backends to it",
    by_tag=True,
    kinds=KINDS,
    proxy="envoy",
    control=control,
    counters=envoy.count,
    module=MODULE,
    definitions=("envoy-gateway/definitions.json",),
    definitions_of="Envoy Gateway",
    workloads={"EnvoyProxy": "spec.provider.kubernetes.envoyDeployment"},
    migrations={"envoy-gateway": "migrate.tsv"},
    workers=Workers(
        rules={"envoyproxy/gateway": within_down},
        fields={"EnvoyProxy": "concurrency"},
        port=envoy.PORT,
        page=envoy.WORKERS,
        metric="server.concurrency",
    ),
)
