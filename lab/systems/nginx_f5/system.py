"""F5's NGINX Ingress Controller 5.6 as the nginx that it carries, with the same directives: *directive-equivalent, not the controller*.

What is missing: the controller process, njs, the status page (this nginx has none), VirtualServers. Facts: its template for an Ingress
(internal/configs/version1) and its defaults (internal/configs/config_params.go), 5.6.0.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lab.base.errors import UsageError, did_you_mean, refuse_unknown
from lab.systems.nginx.served import Directives, control, started
from lab.systems.nginx.system import LOADER, refuse_nginx_workers
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    arguments,
    configmap_of,
    expect,
    refuse_open_files,
)

_CONFIGMAP, _CLASS = "-nginx-configmaps", "-ingress-class"
_WAIVED = ("-default-server-tls-secret", "-watch-namespace", "-enable-", "-report-ingress-status", "-external-service")

Where = Literal["main", "events", "http", "upstream", "after", "server", "location", "member"]


@dataclass(frozen=True, slots=True)
class Key:
    """`directive`: `{}` is the value. `default` empty = the directive is left out."""

    where: Where
    directive: str
    default: str = ""
    flag: bool = False
    """True or false in the ConfigMap, on or off in nginx."""


KEYS: Mapping[str, Key] = {
    "worker-processes": Key("main", "worker_processes {}", "auto"),
    "worker-cpu-affinity": Key("main", "worker_cpu_affinity {}"),
    "worker-rlimit-nofile": Key("main", "worker_rlimit_nofile {}"),
    "worker-shutdown-timeout": Key("main", "worker_shutdown_timeout {}"),
    "error-log-level": Key("main", "error_log stderr {}", "notice"),
    "main-snippets": Key("main", "{}"),
    "worker-connections": Key("events", "worker_connections {}", "1024"),
    "access-log": Key("http", "access_log {}", "/dev/stdout main"),
    "keepalive-timeout": Key("http", "keepalive_timeout {}", "75s"),
    "keepalive-requests": Key("http", "keepalive_requests {}", "1000"),
    "server-names-hash-bucket-size": Key("http", "server_names_hash_bucket_size {}", "256"),
    "server-names-hash-max-size": Key("http", "server_names_hash_max_size {}", "1024"),
    "map-hash-bucket-size": Key("http", "map_hash_bucket_size {}", "256"),
    "map-hash-max-size": Key("http", "map_hash_max_size {}", "2048"),
    "variables-hash-bucket-size": Key("http", "variables_hash_bucket_size {}", "256"),
    "variables-hash-max-size": Key("http", "variables_hash_max_size {}", "1024"),
    "ssl-protocols": Key("http", "ssl_protocols {}"),
    "ssl-ciphers": Key("http", "ssl_ciphers {}"),
    "ssl-prefer-server-ciphers": Key("http", "ssl_prefer_server_ciphers {}", flag=True),
    "http-snippets": Key("http", "{}"),
    "upstream-zone-size": Key("upstream", "zone {{name}} {}", "256k"),
    "lb-method": Key("upstream", "{}", "random two least_conn"),
    "keepalive": Key("after", "keepalive {}"),
    "max-fails": Key("member", " max_fails={}", "1"),
    "fail-timeout": Key("member", " fail_timeout={}", "10s"),
    "max-conns": Key("member", " max_conns={}", "0"),
    "server-tokens": Key("server", "server_tokens {}", "on", flag=True),
    "server-snippets": Key("server", "{}"),
    "proxy-connect-timeout": Key("location", "proxy_connect_timeout {}", "60s"),
    "proxy-read-timeout": Key("location", "proxy_read_timeout {}", "60s"),
    "proxy-send-timeout": Key("location", "proxy_send_timeout {}", "60s"),
    "client-max-body-size": Key("location", "client_max_body_size {}", "1m"),
    "client-body-buffer-size": Key("location", "client_body_buffer_size {}"),
    "proxy-buffering": Key("location", "proxy_buffering {}", "true", flag=True),
    "proxy-buffers": Key("location", "proxy_buffers {}"),
    "proxy-buffer-size": Key("location", "proxy_buffer_size {}"),
    "proxy-busy-buffers-size": Key("location", "proxy_busy_buffers_size {}"),
    "proxy-max-temp-file-size": Key("location", "proxy_max_temp_file_size {}"),
    "location-snippets": Key("location", "{}"),
}
"""Keys of its ConfigMap that are a directive each, in the template's order; with 5.6.0's defaults."""

_UNWRITTEN = {("keepalive", "0"), ("lb-method", "round_robin")}
"""Key and value of which no directive comes: what they say is what nginx does without."""
_OTHER = {"access-log-off": "", "http2": "false", "log-format": ""}
_LOG_FORMAT = (
    '\'$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" '
    '"$http_user_agent" "$http_x_forwarded_for"\''
)
_HEADERS = {
    "Host": "$host",
    "X-Real-IP": "$remote_addr",
    "X-Forwarded-For": "$proxy_add_x_forwarded_for",
    "X-Forwarded-Host": "$host",
    "X-Forwarded-Port": "$server_port",
    "X-Forwarded-Proto": "$scheme",
}


def realise(context: Context) -> Realisation:
    place, data = _configmap(context)
    values = {name: key.default for name, key in KEYS.items()} | _OTHER | dict(data)
    for name in data:
        refuse_unknown(
            name, [*KEYS, *_OTHER], f"{place}: {name}", "is no key that the local target knows of this controller"
        )
    for name, refuse in (("worker-processes", refuse_nginx_workers), ("worker-rlimit-nofile", refuse_open_files)):
        if values[name].isdecimal():
            refuse(f"{place}: {name}", int(values[name]), context)
    return started(context, context.objects.served_ingresses(), directives(place, values), "F5's controller")


def directives(place: str, values: Mapping[str, str]) -> Directives:
    """Of all keys with their values, empty = left out. UsageError for what is neither true nor false."""
    found: dict[str, list[str]] = {}
    for name, key in KEYS.items():
        text = (
            _flag(f"{place}: {name}", values[name]) if key.flag and values[name] else values[name].strip().rstrip(";")
        )
        if text and (name, text) not in _UNWRITTEN:
            found.setdefault(key.where, []).append(key.directive.format(text))
    off = values["access-log-off"] and _flag(f"{place}: access-log-off", values["access-log-off"]) == "on"
    form = f"'{values['log-format']}'" if values["log-format"] else _LOG_FORMAT
    log = [f"log_format main {form}", "sendfile on"]
    headers = {**({"Connection": ""} if values["keepalive"] not in ("", "0") else {}), **_HEADERS}
    return Directives(
        main=found.get("main", []),
        events=found.get("events", []),
        http=[*log, *found.get("http", [])],
        upstream=found.get("upstream", []),
        after=found.get("after", []),
        server=[*found.get("server", []), *(["access_log off"] if off else [])],
        location=["proxy_http_version 1.1", *found.get("location", [])],
        member="".join(found.get("member", [])),
        headers=headers,
        http2=_flag(f"{place}: http2", values["http2"]) == "on",
    )


def _flag(place: str, text: str) -> str:
    words = {"true": "on", "false": "off", "on": "on", "off": "off"}
    if text.lower() not in words:
        raise UsageError(place, f"expected True or False, got {text!r}", "correct it")
    return words[text.lower()]


def _configmap(context: Context) -> tuple[str, Mapping[str, str]]:
    """UsageError for arguments that are not honoured, and for a ConfigMap or class that is not there."""
    container = context.container
    at = f"{container.place}.args"
    expect(container, not container.command, "no command", "nginx-f5")
    given = arguments(container, container.args, (_CONFIGMAP, _CLASS), _WAIVED)
    classes = context.objects.classes
    if (wanted := given.get(_CLASS, "nginx")) not in classes or classes[wanted] != "nginx.org/ingress-controller":
        fault = f"no IngressClass {wanted!r} is of nginx.org/ingress-controller: it would serve nothing"
        raise UsageError(at, fault, did_you_mean(wanted, classes))
    return configmap_of(at, given.get(_CONFIGMAP, ""), context)


SYSTEM = ProxySystem(
    name="nginx-f5",
    image="nginx/nginx-ingress",
    realise=realise,
    note="directive-equivalent: no controller, endpoints change by a reload as its open-source nginx's do",
    control=control,
    renew=by_signal(signal.SIGHUP),  # as `nginx -s reload` tells it
    passing=LOADER,
    migrations={"nginx-f5": "migrate.tsv"},
    workers=Workers(rules={"nginx-ingress": all_cpus}, keys=("worker-processes",)),
)
