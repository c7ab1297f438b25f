"""NGINX Gateway Fabric's data plane as a plain nginx: *directive-equivalent, not the controller*.

The directives are the same. The control plane and its agent, njs, and the status page are missing. The tag of the image names
the release, but every release runs the pinned nginx here. The directives come from the templates of NGINX Gateway Fabric
(internal/controller/nginx/config) at v2.3.0, v2.4.0, v2.6.7 and its main branch of August 2026 (`edge`, e55bfe339). The main
branch writes no `keepalive`, so nginx's own default of 32 idle connections would apply. But if no policy sets a number of
connections, the main branch also adds `Connection: close` to every request. So no connection stays idle.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from lab.base.errors import refuse_unknown
from lab.systems.manifests.fields import Fields, open_spec
from lab.systems.manifests.gateway_api import list_rules
from lab.systems.manifests.objects import Objects
from lab.systems.nginx.system import LOADER, Directives, control, realise_nginx
from lab.systems.renewing import make_signal_renewal
from lab.systems.system import (
    Context,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    refuse_open_files,
    refuse_unexpected,
    refuse_workers,
)

CONTROLLER = "gateway.nginx.org/nginx-gateway-controller"
IDLE_CONNECTIONS: Mapping[str, int] = {"2.3.0": 0, "2.4.0": 16, "2.6.7": 16, "edge": 0}
"""Release → the number of idle upstream connections that nginx leaves open if no policy sets this number.

With 0, every connection is closed after its request. The release is written as in the image's tag.
"""
TLS: Mapping[str, str] = {
    f"nginx.org/{name.replace('_', '-')}": name
    for name in ("ssl_protocols", "ssl_ciphers", "ssl_prefer_server_ciphers")
}
"""TLS option of a Gateway's listener → nginx's directive."""
_METHODS = ("round_robin", "least_conn", "ip_hash", "random", "random two", "random two least_conn")
_HEADERS = {
    "Host": "$gw_api_compliant_host",
    "X-Forwarded-For": "$proxy_add_x_forwarded_for",
    "X-Real-IP": "$remote_addr",
    "X-Forwarded-Proto": "$scheme",
    "X-Forwarded-Host": "$host",
    "X-Forwarded-Port": "$server_port",
    "Upgrade": "$http_upgrade",
}
_MAPS = (
    "map $http_host $gw_api_compliant_host { '' $host; default $http_host; }",
    "map $http_upgrade $connection_upgrade { default upgrade; '' close; }",
    "map $http_upgrade $connection_keepalive { default upgrade; '' ''; }",
)


def realise(context: Context) -> Realisation:
    """Return how the lab starts an nginx in place of a container of NGINX Gateway Fabric.

    The pinned nginx gets the configuration that the release in the image's tag would write. The control plane does not run.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for an unknown release, and for fields and routes that the lab cannot apply to this nginx.
        NotMeasurableError: for more workers or open files than the container may have on this machine.

    """
    container = context.container
    refuse_unexpected(container, not (container.command or container.args), "neither command nor args", "nginx-ngf")
    release = container.image.split("@")[0].rpartition(":")[2]
    fault = f"release {release!r} of NGINX Gateway Fabric is not known here"
    refuse_unknown(release, IDLE_CONNECTIONS, container.place, fault)
    ports = [
        replace(port, options={TLS[name]: value for name, value in port.options.items()})
        for port in context.objects.served(CONTROLLER, TLS)
    ]
    services = {rule.backend.service for rule in list_rules(ports).values() if rule.backend}
    return realise_nginx(context, ports, directives(context, release, services), "NGINX Gateway Fabric")


def directives(context: Context, release: str, services: Collection[str]) -> Directives:
    """Return the directives that a release of NGINX Gateway Fabric writes into nginx's configuration.

    Some of them are fixed. The others result from the variant's policies, which are objects of NGINX Gateway Fabric's own kinds.

    Args:
        context: the facts about the container, with these objects.
        release: the release, which must be one of `IDLE_CONNECTIONS`.
        services: the names of the Services to which routes lead.

    Raises:
        UsageError: for a field that the lab does not understand, and for a policy that is for only some of the Services or
            Gateways.

    """
    objects = context.objects
    main, http, events, zone = _read_proxy(context)
    method, after, connections = "random two least_conn", list[str](), IDLE_CONNECTIONS[release]
    for place, spec in _open_specs(objects, "UpstreamSettingsPolicy"):
        with spec:
            _refuse_partial(place, spec, "Service", services)
            zone = spec.take("zoneSize", zone)
            method = spec.choice("loadBalancingMethod", _METHODS, method)
            with spec.inner("keepAlive") as alive:
                connections = alive.take("connections", connections)
                after += [f"keepalive_requests {alive.take('requests', 0)}"] if alive.has("requests") else []
                after += [f"keepalive_{name} {alive.take(name, '')}" for name in ("time", "timeout") if alive.has(name)]
    keepalive = [f"keepalive {connections}"] if connections else []
    gateways = {gateway.name for gateway in objects.gateways}
    return Directives(
        main=main,
        events=events,
        http=[*http, *_render_snippets(objects, gateways)],
        upstream=[*([method] if method != "round_robin" else []), f"zone {{name}} {zone}"],
        after=[*keepalive, *after],
        location=["proxy_http_version 1.1", *_render_location(objects, gateways)],
        headers={**_HEADERS, "Connection": "$connection_keepalive" if connections else "$connection_upgrade"},
        ready="/readyz",
        http2=True,
        blocks=_MAPS,
    )


def _read_proxy(context: Context) -> tuple[list[str], list[str], list[str], str]:
    """Return the directives that result from the variant's NginxProxy objects, or else from NGINX Gateway Fabric's defaults.

    Returns:
        Four items: the directives outside of all blocks, those of the block http, those of the block events, and the size of an
        upstream's shared memory zone (such as `512k`).

    """
    main, log, level, http2 = ["worker_processes auto"], "access_log /dev/stdout combined", "info", "http2 on"
    connections, zone, tokens = 1024, "512k", "off"
    for place, spec in _open_specs(context.objects, "NginxProxy"):
        with spec:
            spec.waive("telemetry", "metrics", "kubernetes", "ipFamily")  # for the control plane, or for a cluster
            connections = spec.take("workerConnections", connections)
            if spec.has("workerProcesses"):
                workers = spec.take("workerProcesses", 0)
                refuse_workers(f"{place}: spec.workerProcesses", workers, context)
                main = [f"worker_processes {workers}"]
            if spec.has("workerRlimitNofile"):
                files = spec.take("workerRlimitNofile", 0)
                refuse_open_files(f"{place}: spec.workerRlimitNofile", files, context)
                main.append(f"worker_rlimit_nofile {files}")
            http2 = "http2 off" if spec.take("disableHTTP2", False) else http2
            tokens, zone = spec.take("serverTokens", tokens), spec.take("zoneSize", zone)
            with spec.inner("logging") as logging:
                level = logging.take("errorLevel", level)
                with logging.inner("accessLog") as access:
                    if access.take("disable", False):
                        log = "access_log off"
                    elif form := access.take("format", ""):
                        log = f"log_format ngf_user_defined_log_format '{form}'; access_log /dev/stdout ngf_user_defined_log_format"
    http = ["sendfile on", "tcp_nopush on", http2, log, f"server_tokens {tokens}"]
    return [f"error_log stderr {level}", *main], http, [f"worker_connections {connections}"], zone


def _render_snippets(objects: Objects, gateways: Collection[str]) -> Iterator[str]:
    for place, spec in _open_specs(objects, "SnippetsPolicy"):
        with spec:
            _refuse_partial(place, spec, "Gateway", gateways)
            for snippet in spec.each("snippets", "context"):
                snippet.choice("context", ("http",), remedy="the local target has snippets of this context alone")
                yield snippet.need("value", "").strip().rstrip(";")


def _render_location(objects: Objects, gateways: Collection[str]) -> Iterator[str]:
    for place, spec in _open_specs(objects, "ProxySettingsPolicy"):
        with spec, spec.inner("buffering") as buffering, spec.inner("timeout") as timeout:
            _refuse_partial(place, spec, "Gateway", gateways)
            if buffering.has("disable"):
                yield f"proxy_buffering {'off' if buffering.take('disable', False) else 'on'}"
            yield from _render_fields(
                buffering, bufferSize="proxy_buffer_size", busyBuffersSize="proxy_busy_buffers_size"
            )
            if buffering.has("buffers"):
                with buffering.inner("buffers") as buffers:
                    yield f"proxy_buffers {buffers.need('number', 0)} {buffers.need('size', '')}"
            yield from _render_fields(
                timeout, **{name: f"proxy_{name}_timeout" for name in ("connect", "read", "send")}
            )
    for place, spec in _open_specs(objects, "ClientSettingsPolicy"):
        with spec, spec.inner("targetRef") as target, spec.inner("body") as body, spec.inner("keepAlive") as alive:
            _read_target(place, target, "Gateway", gateways)
            sizes = {"maxSize": "client_max_body_size", "bufferSize": "client_body_buffer_size"}
            yield from _render_fields(body, **sizes, timeout="client_body_timeout")
            yield from _render_fields(alive, requests="keepalive_requests", time="keepalive_time")
            with alive.inner("timeout") as timeout:
                if timeout.has("server"):
                    yield f"keepalive_timeout {timeout.take('server', '')} {timeout.take('header', '')}".rstrip()


def _render_fields(fields: Fields, **directives: str) -> Iterator[str]:
    """Yield a line `DIRECTIVE VALUE` of nginx's configuration for each given field that a Kubernetes object sets.

    Args:
        fields: the fields of the object.
        **directives: name of a field → nginx's directive for it.

    """
    return (f"{directive} {fields.any(name)}" for name, directive in directives.items() if fields.has(name))


def _open_specs(objects: Objects, kind: str) -> Iterator[tuple[str, Fields]]:
    """Yield a pair for each object of a kind in the variant's manifests: (place for error messages, fields of the `spec`)."""
    for raw in objects.others:
        if raw["kind"] == kind:
            place = f"{kind}/{raw['metadata']['name']}"
            with open_spec(place, raw, "status") as spec:
                yield place, spec


def _refuse_partial(place: str, spec: Fields, kind: str, required: Collection[str]) -> None:
    """Raise UsageError if a policy names only some of the Services or Gateways that routes use.

    The lab writes each directive once, for all Services and Gateways. So a policy must name all of them.

    Args:
        place: the policy, for error messages.
        spec: the fields of the policy's `spec`.
        kind: the kind of objects that the policy is for: `Service` or `Gateway`.
        required: the names of all objects of this kind.

    """
    targets = {_read_target(place, item, kind, required) for item in spec.each("targetRefs")}
    for missing in sorted(set(required) - targets):
        fault = f"is for {', '.join(sorted(targets)) or 'nothing'} alone, not for {missing}"
        spec.refuse(missing, "targetRefs", fault, f"the local target has one such setting: name {missing}, too")


def _read_target(place: str, item: Fields, kind: str, names: Collection[str]) -> str:
    """Return the name of the object to which a reference in a policy points.

    Args:
        place: the policy, for error messages.
        item: the fields of the reference.
        kind: the kind that the object must have.
        names: the names of all objects of this kind.

    Raises:
        UsageError: for an object of another kind, or one that does not exist.

    """
    item.choice("kind", (kind,))
    item.waive("group")
    name = item.need("name", "")
    refuse_unknown(name, names, f"{place}: {item.at('name')}", f"there is no {kind} {name!r}")
    return name


SYSTEM = ProxySystem(
    name="nginx-ngf",
    image="nginx-gateway-fabric/nginx",
    realise=realise,
    note="directive-equivalent: no control plane, endpoints change by a reload as its open-source nginx's do",
    by_tag=True,
    kinds=frozenset(
        {"NginxProxy", "UpstreamSettingsPolicy", "ProxySettingsPolicy", "ClientSettingsPolicy", "SnippetsPolicy"}
    ),
    control=control,
    renew=make_signal_renewal(signal.SIGHUP),  # the signal of `nginx -s reload`
    passing=LOADER,
    migrations={"nginx-ngf": "migrate.tsv"},
    workers=Workers(rules={"nginx-gateway-fabric/nginx": all_cpus}, fields={"NginxProxy": "workerProcesses"}),
)
