"""A variant's objects → what Envoy Gateway's file provider is given, and whether its Envoy serves that. Pure.

    HTTPRoute bench → Service backend:8080 (pod 10.0.0.2)
        →  HTTPRoute bench → Backend backend-8080, Backend backend-8080 = [10.0.0.2:8080]

From files it knows no EndpointSlices: what a Service leads to becomes a `Backend` of its own kind, with the addresses of the pods that are
ready. A Service without any has none, and its route answers 500 where a cluster's answers 503.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import yaml

from lab.systems.manifests.objects import Objects

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
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces),
        *(_class(name, controller) for name in classes),
        *(dict(each.manifest) for each in gateways),
        *(_secret(found, name, gateways[0].namespace) for name in secrets),
        *map(dict, found.others),
        *_backends(found, addresses),
        *(_route(each.manifest) for each in found.http_routes),
    ]


def written(manifests: Sequence[Manifest]) -> str:
    return yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True)


def _class(name: str, controller: str) -> Manifest:
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass"}
    return {**kind, "metadata": {"name": name}, "spec": {"controllerName": controller}}


def _secret(found: Objects, name: str, namespace: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    files = found.certificate(name, "Gateway: spec.listeners")
    # It leaves stringData as it is, and looks for a certificate in data alone.
    pair = {key: base64.b64encode(files[key].encode()).decode() for key in ("tls.crt", "tls.key") if key in files}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": pair}


def _backends(found: Objects, addresses: Mapping[str, str]) -> Iterator[Manifest]:
    led_to = [(route.namespace, rule.backend) for route in found.http_routes for rule in route.rules if rule.backend]
    for namespace, backend in dict.fromkeys(led_to):
        service, port = backend.service, backend.port
        members = found.members(service, port, addresses)
        endpoints = [{"ip": {"address": member.address, "port": member.port}} for member in members]
        if endpoints:
            metadata = {"name": _name(service, port), "namespace": namespace}
            kind = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Backend"}
            yield {**kind, "metadata": metadata, "spec": {"endpoints": endpoints}}


def _route(raw: Mapping[str, Any]) -> Manifest:
    """To Backends instead of Services; rules without a name of their own are named after their version."""
    route = deepcopy(dict(raw))
    for at, rule in enumerate(route["spec"].setdefault("rules", [{}])):
        for reference in rule.get("backendRefs", []):
            name = _name(reference["name"], reference.pop("port"))
            reference.update(group=GROUP, kind="Backend", name=name)
        said = json.dumps([route["metadata"]["name"], at, route["spec"].get("hostnames"), rule], sort_keys=True)
        rule.setdefault("name", VERSION + hashlib.sha256(said.encode()).hexdigest()[:12])
    return route


def _name(service: str, port: object) -> str:
    return f"{service}-{port}"


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
        return _versions(found) == _wanted_versions(wanted) and _endpoints(found) == _wanted_endpoints(wanted)


def _wanted_versions(manifests: Sequence[Manifest]) -> set[str]:
    rules = (rule for each in manifests if each["kind"] == "HTTPRoute" for rule in each["spec"]["rules"])
    return {rule["name"] for rule in rules if rule["name"].startswith(VERSION)}


def _wanted_endpoints(manifests: Sequence[Manifest]) -> set[tuple[str, int]]:
    found = (item["ip"] for each in manifests if each["kind"] == "Backend" for item in each["spec"]["endpoints"])
    return {(item["address"], item["port"]) for item in found}


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
    addresses = (
        endpoint["endpoint"]["address"]["socket_address"]
        for each in localities
        for endpoint in each.get("lb_endpoints", [])
    )
    return {(each["address"], each["port_value"]) for each in addresses}
