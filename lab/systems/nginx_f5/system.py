"""F5's NGINX Ingress Controller 5.6 as the nginx that it carries, with the same directives: *directive-equivalent, not the controller*.

What is missing: the controller process, njs, the status page (this nginx has none), VirtualServers. Facts: its template for an Ingress
(internal/configs/version1) and its defaults (internal/configs/config_params.go), 5.6.0.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from lab.base.errors import UsageError, did_you_mean
from lab.systems.nginx.system import LOADER, Directives, control, refuse_nginx_workers, started
from lab.systems.renewing import by_signal
from lab.systems.settings import filled, load_keys
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

KEYS = load_keys(Path(__file__).with_name("keys.tsv"))
"""Keys of its ConfigMap, those that are a directive each in the template's order; with 5.6.0's defaults."""

_UNWRITTEN = {("keepalive", "0"), ("lb-method", "round_robin")}
"""Key and value of which no directive comes: what they say is what nginx does without."""
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
    container = context.container
    at = f"{container.place}.args"
    expect(container, not container.command, "no command", "nginx-f5")
    given = arguments(container, container.args, (_CONFIGMAP, _CLASS), _WAIVED)
    classes = context.objects.classes
    if (wanted := given.get(_CLASS, "nginx")) not in classes or classes[wanted] != "nginx.org/ingress-controller":
        fault = f"no IngressClass {wanted!r} is of nginx.org/ingress-controller: it would serve nothing"
        raise UsageError(at, fault, did_you_mean(wanted, classes))
    place, data = configmap_of(at, given.get(_CONFIGMAP, ""), context)
    values = filled(place, data, KEYS)
    for name, refuse in (("worker-processes", refuse_nginx_workers), ("worker-rlimit-nofile", refuse_open_files)):
        if values[name].isdecimal():
            refuse(f"{place}: {name}", int(values[name]), context)
    return started(context, context.objects.served_ingresses(), directives(place, values), "F5's controller")


def directives(place: str, values: Mapping[str, str]) -> Directives:
    """Of all keys with their values, empty = left out. UsageError for what is neither true nor false."""
    found: dict[str, list[str]] = {}
    for name, key in KEYS.items():
        text = values[name].strip().rstrip(";")
        if text and key.kind == "flag":
            text = _flag(f"{place}: {name}", text)
        if text and key.directive and (name, text) not in _UNWRITTEN:
            found.setdefault(key.section, []).append(key.directive.format(text))
    if values["access-log-off"] and _flag(f"{place}: access-log-off", values["access-log-off"]) == "on":
        found.setdefault("server", []).append("access_log off")
    form = f"'{values['log-format']}'" if values["log-format"] else _LOG_FORMAT
    headers = {**({"Connection": ""} if values["keepalive"] not in ("", "0") else {}), **_HEADERS}
    return Directives(
        main=found.get("main", []),
        events=found.get("events", []),
        http=[f"log_format main {form}", "sendfile on", *found.get("http", [])],
        upstream=found.get("upstream", []),
        after=found.get("after", []),
        server=found.get("server", []),
        location=["proxy_http_version 1.1", *found.get("location", [])],
        member="".join(f" {each}" for each in found.get("member", [])),
        headers=headers,
        http2=_flag(f"{place}: http2", values["http2"]) == "on",
    )


def _flag(place: str, text: str) -> str:
    words = {"true": "on", "false": "off", "on": "on", "off": "off"}
    if found := words.get(text.lower()):
        return found
    raise UsageError(place, f"expected True or False, got {text!r}", "correct it")


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
