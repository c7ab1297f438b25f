"""F5's NGINX Ingress Controller 5.6 as a plain nginx: *directive-equivalent, not the controller*.

The directives are the same. The controller process, njs, the status page (this nginx has none) and VirtualServers are missing.
The facts come from the controller's template for an Ingress (internal/configs/version1) and its defaults
(internal/configs/config_params.go), at 5.6.0.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from lab.base.errors import UsageError, did_you_mean, refuse_if
from lab.systems.manifests.gateway_api import list_rules
from lab.systems.nginx.system import LOADER, Directives, control, realise_nginx, refuse_nginx_workers
from lab.systems.renewing import make_signal_renewal
from lab.systems.settings import fill_defaults, load_keys
from lab.systems.system import (
    Context,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    find_configmap,
    parse_arguments,
    refuse_open_files,
    refuse_unexpected,
)

_CONFIGMAP, _CLASS = "-nginx-configmaps", "-ingress-class"
_WAIVED = ("-default-server-tls-secret", "-watch-namespace", "-enable-", "-report-ingress-status", "-external-service")

KEYS = load_keys(Path(__file__).with_name("keys.tsv"))
"""The keys of the controller's ConfigMap, with the defaults of 5.6.0.

Keys that become a single directive are in the order of the controller's template.
"""

_UNWRITTEN = {("keepalive", "0"), ("lb-method", "round_robin")}
"""The (key, value) pairs that result in no directive, because nginx behaves that way without one."""
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
    """Return how the lab starts an nginx in place of a container of F5's NGINX Ingress Controller.

    The pinned nginx gets the configuration that the controller would write. The controller itself does not run.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for arguments, ConfigMap keys and routes that the lab cannot apply to this nginx.
        NotMeasurableError: for more workers or open files than the container may have on this machine.

    """
    container = context.container
    args_place = f"{container.place}.args"
    refuse_unexpected(container, not container.command, "no command", "nginx-f5")
    flags = parse_arguments(container, container.args, (_CONFIGMAP, _CLASS), _WAIVED)
    classes = context.objects.classes
    if (name := flags.get(_CLASS, "nginx")) not in classes or classes[name] != "nginx.org/ingress-controller":
        fault = f"no IngressClass {name!r} is of nginx.org/ingress-controller: it would serve nothing"
        raise UsageError(args_place, fault, did_you_mean(name, classes))
    place, data = find_configmap(args_place, flags.get(_CONFIGMAP, ""), context)
    values = fill_defaults(place, data, KEYS)
    for key, refuse in (("worker-processes", refuse_nginx_workers), ("worker-rlimit-nofile", refuse_open_files)):
        if values[key].isdecimal():
            refuse(f"{place}: {key}", int(values[key]), context)
    ports, directives = context.objects.served_ingresses(), render_directives(place, values)
    ignored = any(rule.grpc for rule in list_rules(ports).values()) and not directives.http2
    fault = "is off, so that the controller ignores nginx.org/grpc-services"
    refuse_if(ignored, f"{place}: http2", fault, "set it to true, and give the Ingress a certificate")
    return realise_nginx(context, ports, directives, "F5's controller")


def render_directives(place: str, values: Mapping[str, str]) -> Directives:
    """Return the directives of nginx's configuration that result from the keys of the controller's ConfigMap.

    A key with an empty value results in no directive.

    Args:
        place: the ConfigMap, for error messages.
        values: key → value, for all keys of the controller.

    Raises:
        UsageError: for a value that must be true or false and is neither.

    """
    by_section: dict[str, list[str]] = {}
    for name, key in KEYS.items():
        text = values[name].strip().rstrip(";")
        if text and key.kind == "flag":
            text = _parse_flag(f"{place}: {name}", text)
        if text and key.directive and (name, text) not in _UNWRITTEN:
            by_section.setdefault(key.section, []).append(key.directive.format(text))
    if values["access-log-off"] and _parse_flag(f"{place}: access-log-off", values["access-log-off"]) == "on":
        by_section.setdefault("server", []).append("access_log off")
    form = f"'{values['log-format']}'" if values["log-format"] else _LOG_FORMAT
    headers = {**({"Connection": ""} if values["keepalive"] not in ("", "0") else {}), **_HEADERS}
    return Directives(
        main=by_section.get("main", []),
        events=by_section.get("events", []),
        http=[f"log_format main {form}", "sendfile on", *by_section.get("http", [])],
        upstream=by_section.get("upstream", []),
        after=by_section.get("after", []),
        server=by_section.get("server", []),
        location=["proxy_http_version 1.1", *by_section.get("location", [])],
        member="".join(f" {parameter}" for parameter in by_section.get("member", [])),
        headers=headers,
        http2=_parse_flag(f"{place}: http2", values["http2"]) == "on",
    )


def _parse_flag(place: str, text: str) -> str:
    """Convert a boolean text to `on` or `off`.

    Args:
        place: the place of the value, for the error message.
        text: `true`, `false`, `on` or `off`, in upper or lower case.

    Raises:
        UsageError: for any other text.

    """
    switches = {"true": "on", "false": "off", "on": "on", "off": "off"}
    if switch := switches.get(text.lower()):
        return switch
    raise UsageError(place, f"expected True or False, got {text!r}", "correct it")


SYSTEM = ProxySystem(
    name="nginx-f5",
    image="nginx/nginx-ingress",
    realise=realise,
    note="directive-equivalent: no controller, endpoints change by a reload as its open-source nginx's do",
    control=control,
    renew=make_signal_renewal(signal.SIGHUP),  # the signal of `nginx -s reload`
    passing=LOADER,
    migrations={"nginx-f5": "migrate.tsv"},
    workers=Workers(rules={"nginx-ingress": all_cpus}, keys=("worker-processes",)),
)
