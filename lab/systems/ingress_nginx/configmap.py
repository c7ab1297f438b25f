"""The ingress-nginx ConfigMap: the written table of keys, ingress-nginx 1.15.1's defaults, and what each becomes.

Source of names, kinds and defaults: kubernetes/ingress-nginx at controller-v1.15.1 (dbb11b9),
internal/ingress/controller/config/config.go and template/configmap.go. How a value is decoded: `decoding`.

Three kinds of keys: realised, as a directive of a stock nginx alone decides them (`TABLE`); without meaning for what the lab sends, in the
real controller too (`NO_MEANING`); the real controller's, which need its own logic, Lua or modules (`controller` in `TABLE`, and `NOT_HERE`):
only their default is accepted here, and `--target apiserver` measures them. `settings` refuses anything else in a manifest, where the real
controller would say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lab.base.errors import UsageError, did_you_mean
from lab.systems.ingress_nginx.decoding import Decoded, decoded

Where = Literal["main", "events", "http", "location", "upstream", "written", "controller", "nowhere"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `kind`: see `decoding`. `directive` is the line it becomes, `{}` its value; written = the template composes it itself, controller =
    the real controller does.

    `optional`: an empty value leaves the directive out. `tls`: only a load over TLS can show it.
    """

    name: str
    kind: str
    default: str
    where: Where
    directive: str = ""
    optional: bool = False
    tls: bool = False
    sweep: str = ""
    """In which the key could show something; empty: as a shipped component of it says, else quick (over TLS: tls)."""
    behind: bool = False
    """Only behind a load balancer can it show anything."""
    names: str = ""
    """The kind of another object, which is named by the value as `namespace/name`; it belongs into the same file."""


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
_BROTLI_TYPES = f"application/xml+rss {_GZIP_TYPES}"
_LOG_FORMAT = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'
    " $request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr"
    " $upstream_response_length $upstream_response_time $upstream_status $req_id"
)

# fmt: off
TABLE = (
    # processes and connections
    Key("worker-processes", "text", "auto", "written"),                     # auto: its CPU limit rounded up, else its CPUs
    Key("worker-cpu-affinity", "text", "", "main", "worker_cpu_affinity {}", optional=True),
    Key("max-worker-open-files", "int", "0", "written"),                    # 0: the hard limit less 1024, at least 1024
    Key("worker-shutdown-timeout", "text", "240s", "main", "worker_shutdown_timeout {}"),
    Key("enable-multi-accept", "bool", "true", "events", "multi_accept {}"),
    Key("max-worker-connections", "int", "16384", "written"),               # 0: three quarters of the open files
    Key("reuse-port", "bool", "true", "written"),
    Key("enable-aio-write", "bool", "true", "written"),
    # keep-alive both ways
    Key("keep-alive", "int", "75", "http", "keepalive_timeout {}s"),
    Key("keep-alive-requests", "int", "1000", "http", "keepalive_requests {}"),
    Key("upstream-keepalive-connections", "int", "320", "written"),         # 0: off
    Key("upstream-keepalive-requests", "int", "10000", "upstream", "keepalive_requests {}"),
    Key("upstream-keepalive-time", "text", "1h", "upstream", "keepalive_time {}"),
    Key("upstream-keepalive-timeout", "int", "60", "upstream", "keepalive_timeout {}s"),
    # logs
    Key("disable-access-log", "bool", "false", "written"),
    Key("disable-http-access-log", "bool", "false", "written"),
    Key("access-log-path", "text", "/var/log/nginx/access.log", "written"),
    Key("http-access-log-path", "text", "", "written"),
    Key("access-log-params", "text", "", "written"),
    Key("skip-access-log-urls", "list", "", "written"),
    Key("enable-access-log-for-default-backend", "bool", "false", "written"),
    Key("log-format-upstream", "format", _LOG_FORMAT, "written"),
    Key("log-format-escape-json", "bool", "false", "written"),
    Key("log-format-escape-none", "bool", "false", "written"),
    Key("error-log-path", "text", "/var/log/nginx/error.log", "written"),
    Key("error-log-level", "text", "notice", "written"),
    Key("enable-syslog", "bool", "false", "controller"),
    Key("syslog-host", "text", "", "controller"),
    Key("syslog-port", "int", "514", "controller"),
    # compression
    Key("use-gzip", "bool", "false", "written"),
    Key("gzip-level", "int", "1", "written"),
    Key("gzip-min-length", "int", "256", "written"),
    Key("gzip-types", "text", _GZIP_TYPES, "written"),
    Key("gzip-disable", "text", "", "written"),
    Key("enable-brotli", "bool", "false", "written", sweep="slow-link-brotli"),
    Key("brotli-level", "int", "4", "written", sweep="slow-link-brotli"),
    Key("brotli-min-length", "int", "20", "written", sweep="slow-link-brotli"),
    Key("brotli-types", "text", _BROTLI_TYPES, "written", sweep="slow-link-brotli"),
    # client side
    Key("client-header-buffer-size", "text", "1k", "http", "client_header_buffer_size {}"),
    Key("client-header-timeout", "int", "60", "http", "client_header_timeout {}s"),
    Key("client-body-buffer-size", "text", "8k", "http", "client_body_buffer_size {}"),
    Key("client-body-timeout", "int", "60", "http", "client_body_timeout {}s"),
    Key("large-client-header-buffers", "text", "4 8k", "http", "large_client_header_buffers {}"),
    Key("enable-underscores-in-headers", "bool", "false", "http", "underscores_in_headers {}"),
    Key("ignore-invalid-headers", "bool", "true", "http", "ignore_invalid_headers {}"),
    Key("generate-request-id", "bool", "true", "written"),
    Key("server-tokens", "bool", "false", "http", "server_tokens {}"),         # the controller also clears the Server header
    Key("relative-redirects", "bool", "false", "controller"),
    Key("use-http2", "bool", "true", "written", tls=True),
    Key("http2-max-concurrent-streams", "int", "128", "http", "http2_max_concurrent_streams {}"),
    # TLS
    Key("ssl-protocols", "text", "TLSv1.2 TLSv1.3", "http", "ssl_protocols {}", tls=True),
    Key("ssl-ciphers", "colons", _CIPHERS, "written", tls=True),
    Key("ssl-ecdh-curve", "colons", "auto", "http", "ssl_ecdh_curve {}", tls=True),
    Key("ssl-early-data", "bool", "false", "http", "ssl_early_data {}", tls=True),
    Key("ssl-session-cache", "bool", "true", "written", tls=True),
    Key("ssl-session-cache-size", "text", "10m", "written", tls=True),
    Key("ssl-session-timeout", "text", "10m", "written", tls=True),
    Key("ssl-session-tickets", "bool", "false", "http", "ssl_session_tickets {}", tls=True),
    Key("ssl-buffer-size", "text", "4k", "http", "ssl_buffer_size {}", tls=True),
    Key("ssl-dh-param", "text", "", "controller", tls=True, names="Secret"),
    Key("ssl-session-ticket-key", "base64", "", "controller", tls=True, sweep="tls-resumption"),
    # hash tables and defaults
    Key("server-name-hash-max-size", "int", "1024", "written"),
    Key("server-name-hash-bucket-size", "int", "0", "written"),             # 0: what the longest name needs
    Key("map-hash-bucket-size", "int", "64", "http", "map_hash_bucket_size {}"),
    Key("proxy-headers-hash-max-size", "int", "512", "http", "proxy_headers_hash_max_size {}"),
    Key("proxy-headers-hash-bucket-size", "int", "64", "http", "proxy_headers_hash_bucket_size {}"),
    Key("variables-hash-bucket-size", "int", "256", "http", "variables_hash_bucket_size {}"),
    Key("variables-hash-max-size", "int", "2048", "http", "variables_hash_max_size {}"),
    Key("limit-req-status-code", "int", "503", "http", "limit_req_status {}"),
    Key("limit-conn-status-code", "int", "503", "http", "limit_conn_status {}"),
    Key("default-type", "text", "text/html", "http", "default_type {}"),
    # proxying
    Key("proxy-body-size", "offset", "1m", "location", "client_max_body_size {}"),
    Key("proxy-connect-timeout", "int", "5", "location", "proxy_connect_timeout {}s"),
    Key("proxy-send-timeout", "int", "60", "location", "proxy_send_timeout {}s"),
    Key("proxy-read-timeout", "int", "60", "location", "proxy_read_timeout {}s"),
    Key("proxy-buffering", "text", "off", "location", "proxy_buffering {}"),
    Key("proxy-buffer-size", "text", "4k", "location", "proxy_buffer_size {}"),
    Key("proxy-buffers-number", "int", "4", "written"),
    Key("proxy-busy-buffers-size", "text", "", "location", "proxy_busy_buffers_size {}", optional=True),
    Key("proxy-max-temp-file-size", "offset", "1024m", "location", "proxy_max_temp_file_size {}"),
    Key("proxy-request-buffering", "text", "on", "location", "proxy_request_buffering {}"),
    Key("proxy-http-version", "text", "1.1", "location", "proxy_http_version {}"),
    Key("proxy-cookie-domain", "text", "off", "location", "proxy_cookie_domain {}"),
    Key("proxy-cookie-path", "text", "off", "location", "proxy_cookie_path {}"),
    Key("proxy-next-upstream", "text", "error timeout", "written"),
    Key("retry-non-idempotent", "bool", "false", "written"),
    Key("proxy-next-upstream-timeout", "int", "0", "location", "proxy_next_upstream_timeout {}"),
    Key("proxy-next-upstream-tries", "int", "3", "location", "proxy_next_upstream_tries {}"),
    Key("proxy-redirect-from", "text", "off", "written"),
    Key("proxy-redirect-to", "text", "off", "written"),
    Key("allow-backend-server-header", "bool", "false", "controller"),
    Key("hide-headers", "list", "", "controller"),
    # whom to believe, and what the backend is told of it
    Key("use-forwarded-headers", "bool", "false", "controller", sweep="forwarded"),
    Key("compute-full-forwarded-for", "bool", "false", "controller", sweep="forwarded"),
    Key("enable-real-ip", "bool", "false", "controller", sweep="forwarded"),
    Key("forwarded-for-header", "text", "X-Forwarded-For", "controller", sweep="forwarded"),
    Key("forwarded-host-header", "text", "X-Forwarded-Host", "controller", sweep="forwarded"),
    Key("proxy-real-ip-cidr", "list", "0.0.0.0/0", "controller", sweep="forwarded"),
    Key("proxy-add-original-uri-header", "bool", "false", "controller"),
    Key("proxy-set-headers", "text", "", "controller", names="ConfigMap"),
    Key("add-headers", "text", "", "controller", names="ConfigMap"),
    Key("use-proxy-protocol", "bool", "false", "written", behind=True),
    Key("forwarded-for-proxy-protocol-header", "text", "X-Forwarded-For-Proxy-Protocol", "controller", behind=True, sweep="forwarded"),
    # who may come, how fast, and what is answered instead
    Key("whitelist-source-range", "list", "", "controller"),
    Key("denylist-source-range", "list", "", "controller"),
    Key("block-cidrs", "list", "", "controller"),
    Key("block-user-agents", "list", "", "controller"),
    Key("block-referers", "list", "", "controller"),
    Key("limit-rate", "int", "0", "controller", sweep="page-sizes"),              # in kB/s; 0: none
    Key("limit-rate-after", "int", "0", "controller", sweep="page-sizes"),
    Key("custom-http-errors", "codes", "", "controller", sweep="errors"),
    Key("disable-proxy-intercept-errors", "bool", "false", "controller", sweep="errors"),
    Key("force-ssl-redirect", "bool", "false", "controller", sweep="redirects"),
    Key("http-redirect-code", "redirect", "308", "controller", sweep="redirects"),
    Key("preserve-trailing-slash", "bool", "false", "controller", sweep="redirects"),
    Key("use-port-in-redirects", "bool", "false", "controller", sweep="redirects"),
    Key("app-root", "text", "", "controller", sweep="redirects"),
    Key("debug-connections", "networks", "", "controller"),
    # the user's own directives
    Key("main-snippet", "directives", "", "written"),
    Key("http-snippet", "directives", "", "written"),
    Key("server-snippet", "directives", "", "written"),
    Key("location-snippet", "directives", "", "written"),
)
# fmt: on

NO_MEANING = {
    "no load of the lab's asks a host that has a certificate without TLS, nor looks at such headers": """
        hsts bool true
        hsts-include-subdomains bool true
        hsts-max-age text 31536000
        hsts-preload bool false
        ssl-redirect bool true
        no-tls-redirect-locations list /.well-known/acme-challenge
    """,
    "no certificate of the lab's has an OCSP responder": """
        enable-ocsp bool false
    """,
    "no route of the lab's has these annotations, nor asks for another host": """
        proxy-ssl-location-only bool false
        ssl-reject-handshake bool false
    """,
    "the lab sends HTTP only": """
        disable-stream-access-log bool false
        stream-access-log-path text
        log-format-stream format [$remote_addr] [$time_local] $protocol $status $bytes_sent $bytes_received $session_time
        stream-snippet directives
        proxy-stream-timeout text 600s
        proxy-stream-next-upstream bool true
        proxy-stream-next-upstream-timeout text 600s
        proxy-stream-next-upstream-tries int 3
        proxy-stream-responses int 1
        grpc-buffer-size-kb int 0
    """,
    "nginx ignores it from 1.19.7 on: large-client-header-buffers and keep-alive-requests are for HTTP/2, too": """
        http2-max-field-size text
        http2-max-header-size text
        http2-max-requests int 0
    """,
    "pods have IPv4 only": """
        disable-ipv6 bool false
        disable-ipv6-dns bool false
    """,
    "the controller sets it itself, from bind-address": """
        bind-address-ipv4 text
        bind-address-ipv6 text
    """,
    "it guards what the lab does not use": """
        allow-snippet-annotations bool false
        allow-cross-namespace-resources bool false
        annotations-risk-level text High
        annotation-value-word-blocklist list
        strict-validate-path-type bool true
        nginx-status-ipv4-whitelist list 127.0.0.1
        nginx-status-ipv6-whitelist list ::1
        proxy-protocol-header-timeout duration 5s
        no-auth-locations list /.well-known/acme-challenge
    """,
}
"""Reason → `key kind default` of keys that change nothing for this traffic, in the real controller either."""

NOT_HERE = {
    "needs a module of the controller's": """
        enable-modsecurity bool false
        enable-owasp-modsecurity-crs bool false
        modsecurity-snippet directives
        enable-opentelemetry bool false
        opentelemetry-config text /etc/ingress-controller/telemetry/opentelemetry.toml
        opentelemetry-operation-name text
        opentelemetry-trust-incoming-span bool true
        otlp-collector-host text
        otlp-collector-port text 4317
        otel-service-name text nginx
        otel-sampler text AlwaysOn
        otel-sampler-ratio float 0.01
        otel-sampler-parent-based bool true
        otel-max-queuesize int32 2048
        otel-schedule-delay-millis int32 5000
        otel-max-export-batch-size int32 512
        use-geoip2 bool false
        geoip2-autoreload-in-minutes int 0
    """,
    "is done by the controller's Lua": """
        lua-shared-dicts list
        load-balance text round_robin
        upstream-hash-by text
        upstream-hash-by-subset bool false
        upstream-hash-by-subset-size int 3
        service-upstream bool false
        global-allowed-response-headers list
        limit-conn-zone-variable text $binary_remote_addr
        global-auth-url text
        global-auth-method text
        global-auth-signin text
        global-auth-signin-redirect-param text rd
        global-auth-response-headers list
        global-auth-request-redirect text
        global-auth-snippet directives
        global-auth-cache-key text
        global-auth-cache-duration text
        global-auth-always-set-cookie bool false
        global-external-auth struct
        enable-auth-access-log bool false
    """,
    "says when the controller reloads": """
        enable-serial-reloads bool false
    """,
    "names addresses of nodes, which no pod here has": """
        bind-address list
    """,
}
"""The same of keys that the local target cannot realise, beside those of `TABLE`."""


def _elsewhere(reasons: Mapping[str, str]) -> dict[str, tuple[Key, str]]:
    rows = (
        (*(*line.split(maxsplit=2), "")[:3], why) for why, text in reasons.items() for line in text.strip().splitlines()
    )
    return {name: (Key(name, kind, default, "nowhere"), why) for name, kind, default, why in rows}


IDLE, FOREIGN = (
    _elsewhere(NO_MEANING),
    {key.name: (key, "needs the controller's own logic") for key in TABLE if key.where == "controller"}
    | _elsewhere(NOT_HERE),
)
"""Key → itself and the reason."""

KEYS: Mapping[str, Key] = {
    **{key.name: key for key in TABLE},
    **{name: key for name, (key, _) in (IDLE | FOREIGN).items()},
}
"""Every key that ingress-nginx 1.15.1 has."""


def look_up(name: str, text: str) -> tuple[Key, Decoded]:
    """A key that is known, and what the controller makes of this value."""
    key = KEYS[name]
    return key, decoded(key.kind, text, key.default)


def settings(place: str, data: Mapping[str, str]) -> dict[str, str]:
    """Every key that is realised here with the ConfigMap's value or the default, as decoded. UsageError that names all that is refused."""
    values = {key.name: key.default for key in TABLE if key.name not in FOREIGN}
    faults: list[tuple[str, str, str]] = []
    for name, text in data.items():
        where = f"{place}: data.{name}"
        if name not in KEYS:
            fault = "ingress-nginx 1.15.1 has no such key, and would ignore it"
            faults.append((where, fault, did_you_mean(name, KEYS)))
            continue
        key, found = look_up(name, text)
        if name in IDLE:
            continue
        if found.kept:
            faults.append((where, found.told, f"correct it, or leave it at {key.default!r}"))
        elif name not in FOREIGN:
            values[name] = found.value
        elif found.value != key.default:
            fault = f"the local target cannot realise this key: it {FOREIGN[name][1]}"
            faults.append((where, fault, f"use --target apiserver, or leave it at {key.default!r}"))
    if faults:
        (where, fault, remedy), *others = faults
        raise UsageError(where, fault, "\n  ".join([remedy, *(f"{at}: {told}: {cure}" for at, told, cure in others)]))
    return values


def lines(values: Mapping[str, str], where: Where) -> list[str]:
    """The directives of one block that the table alone describes."""
    words = {"true": "on", "false": "off"}
    there = ((key, values[key.name]) for key in TABLE if key.where == where)
    return [
        key.directive.format(words[value] if key.kind == "bool" else value) + ";"
        for key, value in there
        if value or not (key.optional or key.kind == "offset")
    ]
