"""The ingress-nginx ConfigMap: the written table of keys, ingress-nginx 1.15.1's defaults, and what each becomes.

Source of names and defaults: kubernetes/ingress-nginx at controller-v1.15.1 (dbb11b9),
internal/ingress/controller/config/config.go and docs/user-guide/nginx-configuration/configmap.md.

Three kinds of keys: realised (`TABLE`); without meaning for what the lab sends, in the real controller too
(`NO_MEANING`); known, but not to be had from a stock nginx or not written yet (`NOT_HERE`: only their default is
accepted). Anything else is refused with the nearest known key, where the real controller would say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lab.base.errors import UsageError, did_you_mean

Where = Literal["main", "events", "http", "location", "upstream", "written"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `directive` is the line it becomes, `{}` its value; written = `ingress_nginx.py` composes it itself.

    An empty value leaves the directive out.
    """

    name: str
    kind: str
    default: str
    where: Where
    directive: str = ""


_CIPHERS = ":".join(
    f"{exchange}-{cipher}"
    for exchange, cipher in [
        ("ECDHE-ECDSA", "AES128-GCM-SHA256"),
        ("ECDHE-RSA", "AES128-GCM-SHA256"),
        ("ECDHE-ECDSA", "AES256-GCM-SHA384"),
        ("ECDHE-RSA", "AES256-GCM-SHA384"),
        ("ECDHE-ECDSA", "CHACHA20-POLY1305"),
        ("ECDHE-RSA", "CHACHA20-POLY1305"),
        ("DHE-RSA", "AES256-GCM-SHA384"),
        ("DHE-RSA", "AES128-GCM-SHA256"),
    ]
)
_GZIP_TYPES = (
    "application/atom+xml application/javascript application/x-javascript application/json application/rss+xml"
    " application/vnd.ms-fontobject application/x-font-ttf application/x-web-app-manifest+json application/xhtml+xml"
    " application/xml font/opentype image/svg+xml image/x-icon text/css text/javascript text/plain text/x-component"
)
_LOG_FORMAT = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'
    " $request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr"
    " $upstream_response_length $upstream_response_time $upstream_status $req_id"
)

# fmt: off
TABLE = (
    # processes and connections
    Key("worker-processes", "workers", "auto", "written"),                     # auto: its CPU limit rounded up, else its CPUs
    Key("worker-cpu-affinity", "text", "", "main", "worker_cpu_affinity {}"),
    Key("max-worker-open-files", "number", "0", "written"),                    # 0: the hard limit less 1024, at least 1024
    Key("worker-shutdown-timeout", "time", "240s", "main", "worker_shutdown_timeout {}"),
    Key("enable-multi-accept", "bool", "true", "events", "multi_accept {}"),
    Key("max-worker-connections", "number", "16384", "written"),               # 0: three quarters of the open files
    Key("reuse-port", "bool", "true", "written"),
    Key("enable-aio-write", "bool", "true", "written"),
    # keep-alive both ways
    Key("keep-alive", "number", "75", "http", "keepalive_timeout {}s"),
    Key("keep-alive-requests", "number", "1000", "http", "keepalive_requests {}"),
    Key("upstream-keepalive-connections", "number", "320", "written"),         # 0: off
    Key("upstream-keepalive-requests", "number", "10000", "upstream", "keepalive_requests {}"),
    Key("upstream-keepalive-time", "time", "1h", "upstream", "keepalive_time {}"),
    Key("upstream-keepalive-timeout", "number", "60", "upstream", "keepalive_timeout {}s"),
    # logs
    Key("disable-access-log", "bool", "false", "written"),
    Key("disable-http-access-log", "bool", "false", "written"),
    Key("access-log-path", "text", "/var/log/nginx/access.log", "written"),
    Key("http-access-log-path", "text", "", "written"),
    Key("access-log-params", "text", "", "written"),
    Key("skip-access-log-urls", "list", "", "written"),
    Key("enable-access-log-for-default-backend", "bool", "false", "written"),
    Key("log-format-upstream", "text", _LOG_FORMAT, "written"),
    Key("log-format-escape-json", "bool", "false", "written"),
    Key("log-format-escape-none", "bool", "false", "written"),
    Key("error-log-path", "text", "/var/log/nginx/error.log", "written"),
    Key("error-log-level", "level", "notice", "written"),
    # compression
    Key("use-gzip", "bool", "false", "written"),
    Key("gzip-level", "gzip", "1", "written"),
    Key("gzip-min-length", "number", "256", "written"),
    Key("gzip-types", "text", _GZIP_TYPES, "written"),
    Key("gzip-disable", "text", "", "written"),
    # client side
    Key("client-header-buffer-size", "size", "1k", "http", "client_header_buffer_size {}"),
    Key("client-header-timeout", "number", "60", "http", "client_header_timeout {}s"),
    Key("client-body-buffer-size", "size", "8k", "http", "client_body_buffer_size {}"),
    Key("client-body-timeout", "number", "60", "http", "client_body_timeout {}s"),
    Key("large-client-header-buffers", "buffers", "4 8k", "http", "large_client_header_buffers {}"),
    Key("enable-underscores-in-headers", "bool", "false", "http", "underscores_in_headers {}"),
    Key("ignore-invalid-headers", "bool", "true", "http", "ignore_invalid_headers {}"),
    Key("generate-request-id", "bool", "true", "written"),
    Key("server-tokens", "bool", "false", "http", "server_tokens {}"),         # the controller also clears the Server header
    Key("relative-redirects", "bool", "false", "written"),
    Key("use-http2", "bool", "true", "written"),
    Key("http2-max-concurrent-streams", "number", "128", "http", "http2_max_concurrent_streams {}"),
    # TLS
    Key("ssl-protocols", "text", "TLSv1.2 TLSv1.3", "http", "ssl_protocols {}"),
    Key("ssl-ciphers", "text", _CIPHERS, "written"),
    Key("ssl-ecdh-curve", "text", "auto", "http", "ssl_ecdh_curve {}"),
    Key("ssl-early-data", "bool", "false", "http", "ssl_early_data {}"),
    Key("ssl-session-cache", "bool", "true", "written"),
    Key("ssl-session-cache-size", "size", "10m", "written"),
    Key("ssl-session-timeout", "time", "10m", "written"),
    Key("ssl-session-tickets", "bool", "false", "http", "ssl_session_tickets {}"),
    Key("ssl-buffer-size", "size", "4k", "http", "ssl_buffer_size {}"),
    # hash tables and defaults
    Key("server-name-hash-max-size", "number", "1024", "written"),
    Key("server-name-hash-bucket-size", "number", "0", "written"),             # 0: what the longest name needs
    Key("map-hash-bucket-size", "number", "64", "http", "map_hash_bucket_size {}"),
    Key("proxy-headers-hash-max-size", "number", "512", "http", "proxy_headers_hash_max_size {}"),
    Key("proxy-headers-hash-bucket-size", "number", "64", "http", "proxy_headers_hash_bucket_size {}"),
    Key("variables-hash-bucket-size", "number", "256", "http", "variables_hash_bucket_size {}"),
    Key("variables-hash-max-size", "number", "2048", "http", "variables_hash_max_size {}"),
    Key("limit-req-status-code", "number", "503", "http", "limit_req_status {}"),
    Key("limit-conn-status-code", "number", "503", "http", "limit_conn_status {}"),
    Key("default-type", "text", "text/html", "http", "default_type {}"),
    # proxying
    Key("proxy-body-size", "size", "1m", "location", "client_max_body_size {}"),
    Key("proxy-connect-timeout", "number", "5", "location", "proxy_connect_timeout {}s"),
    Key("proxy-send-timeout", "number", "60", "location", "proxy_send_timeout {}s"),
    Key("proxy-read-timeout", "number", "60", "location", "proxy_read_timeout {}s"),
    Key("proxy-buffering", "switch", "off", "location", "proxy_buffering {}"),
    Key("proxy-buffer-size", "size", "4k", "location", "proxy_buffer_size {}"),
    Key("proxy-buffers-number", "number", "4", "written"),
    Key("proxy-busy-buffers-size", "size", "", "location", "proxy_busy_buffers_size {}"),
    Key("proxy-max-temp-file-size", "size", "1024m", "location", "proxy_max_temp_file_size {}"),
    Key("proxy-request-buffering", "switch", "on", "location", "proxy_request_buffering {}"),
    Key("proxy-http-version", "text", "1.1", "location", "proxy_http_version {}"),
    Key("proxy-cookie-domain", "text", "off", "location", "proxy_cookie_domain {}"),
    Key("proxy-cookie-path", "text", "off", "location", "proxy_cookie_path {}"),
    Key("proxy-next-upstream", "text", "error timeout", "written"),
    Key("retry-non-idempotent", "bool", "false", "written"),
    Key("proxy-next-upstream-timeout", "number", "0", "location", "proxy_next_upstream_timeout {}"),
    Key("proxy-next-upstream-tries", "number", "3", "location", "proxy_next_upstream_tries {}"),
    Key("proxy-redirect-from", "text", "off", "written"),
    Key("proxy-redirect-to", "text", "off", "written"),
    Key("allow-backend-server-header", "bool", "false", "written"),
    Key("hide-headers", "list", "", "written"),
    # the user's own directives
    Key("main-snippet", "text", "", "written"),
    Key("http-snippet", "text", "", "written"),
    Key("server-snippet", "text", "", "written"),
    Key("location-snippet", "text", "", "written"),
)
# fmt: on

NO_MEANING = {
    "no route of the lab's has TLS": "hsts hsts-include-subdomains hsts-max-age hsts-preload http-redirect-code ssl-redirect"
    " no-tls-redirect-locations enable-ocsp proxy-ssl-location-only ssl-reject-handshake",
    "the lab sends HTTP only": "disable-stream-access-log stream-access-log-path log-format-stream stream-snippet"
    " proxy-stream-timeout proxy-stream-next-upstream proxy-stream-next-upstream-timeout proxy-stream-next-upstream-tries"
    " proxy-stream-responses grpc-buffer-size-kb",
    "pods have IPv4 only": "disable-ipv6 disable-ipv6-dns",
    "it guards what the lab does not use": "allow-snippet-annotations allow-cross-namespace-resources annotations-risk-level"
    " annotation-value-word-blocklist strict-validate-path-type nginx-status-ipv4-whitelist nginx-status-ipv6-whitelist"
    " proxy-protocol-header-timeout no-auth-locations",
}
"""Reason → keys that change nothing for this traffic, in the real controller either."""

NOT_HERE = {
    "needs a module that stock nginx has not": {
        "enable-brotli": "false", "brotli-level": "4", "brotli-min-length": "20", "brotli-types": None,
        "enable-modsecurity": "false", "enable-owasp-modsecurity-crs": "false", "modsecurity-snippet": "",
        "enable-opentelemetry": "false", "opentelemetry-config": None, "opentelemetry-operation-name": None,
        "opentelemetry-trust-incoming-span": "true", "otlp-collector-host": "", "otlp-collector-port": "4317",
        "otel-service-name": "nginx", "otel-sampler": "AlwaysOn", "otel-sampler-ratio": "0.01",
        "otel-sampler-parent-based": "true", "otel-max-queuesize": "2048", "otel-schedule-delay-millis": "5000",
        "otel-max-export-batch-size": "512", "use-geoip2": "false", "geoip2-autoreload-in-minutes": "0", "add-headers": "",
    },
    "is done by the controller's Lua": {
        "lua-shared-dicts": None, "load-balance": "round_robin", "upstream-hash-by": "", "upstream-hash-by-subset": "false",
        "upstream-hash-by-subset-size": "3", "service-upstream": "false", "block-cidrs": "", "block-user-agents": "",
        "block-referers": "", "global-allowed-response-headers": "", "limit-conn-zone-variable": None,
        "global-auth-url": "", "global-auth-method": "", "global-auth-signin": "", "global-auth-signin-redirect-param": "rd",
        "global-auth-response-headers": "", "global-auth-request-redirect": "", "global-auth-snippet": "",
        "global-auth-cache-key": "", "global-auth-cache-duration": None, "global-auth-always-set-cookie": "false",
        "global-external-auth": None, "enable-auth-access-log": "false",
    },
    "is not written for the local target yet": {
        "use-forwarded-headers": "false", "compute-full-forwarded-for": "false", "enable-real-ip": "false",
        "forwarded-for-header": "X-Forwarded-For", "forwarded-for-proxy-protocol-header": "X-Forwarded-For-Proxy-Protocol",
        "forwarded-host-header": "X-Forwarded-Host", "proxy-real-ip-cidr": "0.0.0.0/0", "use-proxy-protocol": "false",
        "proxy-add-original-uri-header": "false", "proxy-set-headers": "", "custom-http-errors": "",
        "disable-proxy-intercept-errors": "false", "preserve-trailing-slash": "false", "force-ssl-redirect": "false",
        "use-port-in-redirects": "false", "app-root": "", "bind-address": "", "bind-address-ipv4": None, "bind-address-ipv6": None,
        "whitelist-source-range": "", "denylist-source-range": "", "limit-rate": "0", "limit-rate-after": "0",
        "enable-syslog": "false", "syslog-host": "", "syslog-port": "514", "debug-connections": "", "enable-serial-reloads": "false",
        "http2-max-field-size": "", "http2-max-header-size": "", "http2-max-requests": "0", "ssl-dh-param": "",
        "ssl-session-ticket-key": "",
    },
}  # fmt: skip
"""Reason → key → the one value that is accepted: the default (None: none)."""

_TRUE = {"1": "true", "t": "true", "T": "true", "TRUE": "true", "true": "true", "True": "true"}
_FALSE = {"0": "false", "f": "false", "F": "false", "FALSE": "false", "false": "false", "False": "false"}


def _pattern(pattern: str) -> Callable[[str], str | None]:
    return lambda value: value if re.fullmatch(pattern, value) else None


_KINDS: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "text": ("text without line breaks, braces or semicolons", lambda value: value),
    "list": ("names separated by commas", lambda value: value),
    "bool": ('"true" or "false"', (_TRUE | _FALSE).get),
    "switch": ('"on" or "off"', _pattern("on|off")),
    "number": (
        "a whole number from 0 to 2147483647",
        lambda v: v if v.isascii() and v.isdigit() and int(v) < 2**31 else None,
    ),
    "workers": ('"auto" or a whole number from 1', _pattern("auto|[1-9][0-9]{0,3}")),
    "gzip": ("a level from 1 to 9", _pattern("[1-9]")),
    "size": ("a size such as 512, 8k or 1m", _pattern("[0-9]{1,9}[kKmM]?|")),
    "buffers": ("a number and a size, such as 4 8k", _pattern("[0-9]{1,6} [0-9]{1,9}[kKmM]?")),
    "time": ("a time such as 60s, 10m or 1h", _pattern("[0-9]{1,9}(ms|[smhdwMy])?")),
    "level": ("a level such as notice or error", _pattern("debug|info|notice|warn|error|crit|alert|emerg")),
}
_FREE = {"main-snippet", "http-snippet", "server-snippet", "location-snippet", "log-format-upstream"}


def settings(place: str, data: Mapping[str, str]) -> dict[str, str]:
    """Every key of `TABLE` with the ConfigMap's value or the default. UsageError for the first key or value refused."""
    known = {key.name: key for key in TABLE}
    values = {key.name: key.default for key in TABLE}
    idle = {name for names in NO_MEANING.values() for name in names.split()}
    foreign = {name: (default, reason) for reason, keys in NOT_HERE.items() for name, default in keys.items()}
    for name, value in data.items():
        where = f"{place}: data.{name}"
        if name in known:
            values[name] = _checked(where, known[name], value)
        elif name in foreign:
            default, reason = foreign[name]
            if value != default:
                raise UsageError(
                    where,
                    f"the local target cannot realise this key: it {reason}",
                    "use --target kind, or leave it out"
                    if default is None
                    else f"use --target kind, or leave it at {default!r}",
                )
        elif name not in idle:
            raise UsageError(
                where,
                "ingress-nginx 1.15.1 has no such key, and would ignore it",
                did_you_mean(name, {*known, *idle, *foreign}),
            )
    return values


def _checked(where: str, key: Key, value: str) -> str:
    expected, read = _KINDS[key.kind]
    found = read(value)
    if found is None or (key.kind in ("text", "list") and key.name not in _FREE and set(value) & set("\n;{}")):
        raise UsageError(where, f"expected {expected}, got {value!r}", f"the default is {key.default!r}")
    return found


def lines(values: Mapping[str, str], where: Where) -> list[str]:
    """The directives of one block that the table alone describes."""
    words = {"true": "on", "false": "off"}
    there = ((key, values[key.name]) for key in TABLE if key.where == where and values[key.name])
    return [key.directive.format(words[value] if key.kind == "bool" else value) + ";" for key, value in there]
