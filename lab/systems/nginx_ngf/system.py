"""NGINX Gateway Fabric's data plane as the nginx that it carries, with the same directives: *directive-equivalent, not the controller*.

What is missing: the control plane and its agent, njs, the status page. Which release it is, the image's tag says;
all of them run the pinned nginx here. Facts: its templates (internal/controller/nginx/config) at v2.3.0, v2.4.0, v2.6.7 and its main branch
of August 2026 (`edge`, e55bfe339), which writes no `keepalive`, so that nginx's own 32 idle connections hold, and `Connection: close` on
every request unless a policy names a number: of the 32 none is used.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from lab.base.errors import refuse_unknown
from lab.systems.manifests.fields import Fields, spec_of
from lab.systems.manifests.gateway_api import rules_of
from lab.systems.manifests.objects import Objects
from lab.systems.nginx.system import LOADER, Directives, control, started
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    expect,
    refuse_open_files,
    refuse_workers,
)

CONTROLLER = "gateway.nginx.org/nginx-gateway-controller"
KEPT: Mapping[str, int] = {"2.3.0": 0, "2.4.0": 16, "2.6.7": 16, "edge": 0}
"""Release, as the image's tag has it → idle upstream connections that it asks nginx to keep where no policy says how many; 0 = it has each closed."""
TLS: Mapping[str, str] = {
    f"nginx.org/{name.replace('_', '-')}": name
    for name in ("ssl_protocols", "ssl_ciphers", "ssl_prefer_server_ciphers")
}
"""Option of a listener's TLS → the directive that it is."""
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
    container = context.container
    expect(container, not (container.command or container.args), "neither command nor args", "nginx-ngf")
    release = container.image.split("@")[0].rpartition(":")[2]
    fault = f"release {release!r} of NGINX Gateway Fabric is not known here"
    refuse_unknown(release, KEPT, container.place, fault)
    ports = [
        replace(port, options={TLS[name]: value for name, value in port.options.items()})
        for port in context.objects.served(CONTROLLER, TLS)
    ]
    services = {rule.backend.service for rule in rules_of(ports).values() if rule.backend}
    return started(context, ports, directives(context, release, services), "NGINX Gateway Fabric")


def directives(context: Context, release: str, services: Collection[str]) -> Directives:
    """Of its own objects. UsageError for a field that is not honoured, and for a policy that is not for everything here."""
    objects = context.objects
    main, http, events, zone = _proxy(context)
    method, after, kept = "random two least_conn", list[str](), KEPT[release]
    for place, spec in _of(objects, "UpstreamSettingsPolicy"):
        with spec:
            _targets(place, spec, "Service", services)
            zone = spec.take("zoneSize", zone)
            method = spec.choice("loadBalancingMethod", _METHODS, method)
            with spec.inner("keepAlive") as alive:
                kept = alive.take("connections", kept)
                after += [f"keepalive_requests {alive.take('requests', 0)}"] if alive.has("requests") else []
                after += [f"keepalive_{name} {alive.take(name, '')}" for name in ("time", "timeout") if alive.has(name)]
    asked = [f"keepalive {kept}"] if kept else []
    gateways = {gateway.name for gateway in objects.gateways}
    return Directives(
        main=main,
        events=events,
        http=http,
        upstream=[*([method] if method != "round_robin" else []), f"zone {{name}} {zone}"],
        after=[*asked, *after],
        location=["proxy_http_version 1.1", *_location(objects, gateways)],
        headers={**_HEADERS, "Connection": "$connection_keepalive" if kept else "$connection_upgrade"},
        ready="/readyz",
        http2=True,
        blocks=_MAPS,
    )


def _proxy(context: Context) -> tuple[list[str], list[str], list[str], str]:
    """(main, http, events, size of the zones) from NginxProxy, or as it is without one."""
    main, log, level, http2 = ["worker_processes auto"], "access_log /dev/stdout combined", "info", "http2 on"
    connections, zone, tokens = 1024, "512k", "off"
    for place, spec in _of(context.objects, "NginxProxy"):
        with spec:
            spec.waive("telemetry", "metrics", "kubernetes", "ipFamily")  # the control plane's, and a cluster's
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


def _location(objects: Objects, gateways: Collection[str]) -> Iterator[str]:
    for place, spec in _of(objects, "ProxySettingsPolicy"):
        with spec, spec.inner("buffering") as buffering, spec.inner("timeout") as timeout:
            _targets(place, spec, "Gateway", gateways)
            if buffering.has("disable"):
                yield f"proxy_buffering {'off' if buffering.take('disable', False) else 'on'}"
            yield from _given(buffering, bufferSize="proxy_buffer_size", busyBuffersSize="proxy_busy_buffers_size")
            if buffering.has("buffers"):
                with buffering.inner("buffers") as buffers:
                    yield f"proxy_buffers {buffers.need('number', 0)} {buffers.need('size', '')}"
            yield from _given(timeout, **{name: f"proxy_{name}_timeout" for name in ("connect", "read", "send")})
    for place, spec in _of(objects, "ClientSettingsPolicy"):
        with spec, spec.inner("targetRef") as target, spec.inner("body") as body, spec.inner("keepAlive") as alive:
            _is(place, target, "Gateway", gateways)
            sizes = {"maxSize": "client_max_body_size", "bufferSize": "client_body_buffer_size"}
            yield from _given(body, **sizes, timeout="client_body_timeout")
            yield from _given(alive, requests="keepalive_requests", time="keepalive_time")
            with alive.inner("timeout") as timeout:
                if timeout.has("server"):
                    yield f"keepalive_timeout {timeout.take('server', '')} {timeout.take('header', '')}".rstrip()


def _given(fields: Fields, **directives: str) -> Iterator[str]:
    """A directive of each of these fields that is there."""
    return (f"{directive} {fields.any(name)}" for name, directive in directives.items() if fields.has(name))


def _of(objects: Objects, kind: str) -> Iterator[tuple[str, Fields]]:
    for raw in objects.others:
        if raw["kind"] == kind:
            place = f"{kind}/{raw['metadata']['name']}"
            with spec_of(place, raw, "status") as spec:
                yield place, spec


def _targets(place: str, spec: Fields, kind: str, wanted: Collection[str]) -> None:
    """UsageError unless a policy is for all that there is: directives stand once here."""
    named = {_is(place, item, kind, wanted) for item in spec.each("targetRefs")}
    for missing in sorted(set(wanted) - named):
        fault = f"is for {', '.join(sorted(named)) or 'nothing'} alone, not for {missing}"
        spec.refuse(missing, "targetRefs", fault, f"the local target has one such setting: name {missing}, too")


def _is(place: str, item: Fields, kind: str, known: Collection[str]) -> str:
    item.choice("kind", (kind,))
    item.waive("group")
    name = item.need("name", "")
    refuse_unknown(name, known, f"{place}: {item.at('name')}", f"there is no {kind} {name!r}")
    return name


SYSTEM = ProxySystem(
    name="nginx-ngf",
    image="nginx-gateway-fabric/nginx",
    realise=realise,
    note="directive-equivalent: no control plane, endpoints change by a reload as its open-source nginx's do",
    by_tag=True,
    kinds=frozenset({"NginxProxy", "UpstreamSettingsPolicy", "ProxySettingsPolicy", "ClientSettingsPolicy"}),
    control=control,
    renew=by_signal(signal.SIGHUP),  # as `nginx -s reload` tells it
    passing=LOADER,
    migrations={"nginx-ngf": "migrate.tsv"},
    workers=Workers(rules={"nginx-gateway-fabric/nginx": all_cpus}, fields={"NginxProxy": "workerProcesses"}),
)
