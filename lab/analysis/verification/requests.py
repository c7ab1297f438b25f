r"""The requests of a verification: from a user's Ingresses, from a catalogue of edge cases, and from a user's file of requests.

    RoutedPath(host="shop.example", path="/api", kind="Prefix", …)  →  GET /api, GET /api/, GET /apix, GET /API, GET /%61pi, …
    catalogue.tsv: `double-slash  GET //a HTTP/1.1\r\nHost: {host}\r\n  …`  →  one request

The heads in the catalogue have Python's escapes; {host} is the host of the catalogue's own route. {limit} is the size of the
largest body that ingress-nginx accepts, and {beyond} is one byte more.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab.base.errors import UsageError, refuse_if
from lab.base.files import read_tsv
from lab.model.exchanges import RawRequest

CATALOGUE = Path(__file__).with_name("catalogue.tsv")
CATALOGUE_HOST, TLS_HOST = "bench.lab.test", "tls.lab.test"
"""The hosts of the catalogue's own routes, without and with a certificate; both lead every path to one Service."""
USER, PASSWORD = "lab", "lab"
"""The name and password that the Secrets of the verification accept, in place of the user's."""
LARGEST_BODY = 8 << 20
"""The largest limit of bodies that is tried; sending more takes seconds."""
_SIZE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_LITERALS = (
    (r"\(/\|\$\)", "/"), (r"\(\$\|/\)", "/"), (r"\(\?[:i]*", "("), (r"\.[*+]\??", "lab"), (r"\[\^[^\]]*\][*+]?", "lab"),
    (r"\\d(\{\d+\}|[+*])?", "1"), (r"\\w(\{\d+\}|[+*])?", "a"), (r"\[0-9\](\{\d+\}|[+*])?", "1"),
    (r"\[[aA]-[^\]]*\](\{\d+\}|[+*])?", "a"), (r"\(([^()|]*)\|[^()]*\)", r"\1"), (r"\(([^()]*)\)[?*+]?", r"\1"),
    (r"\\([./_-])", r"\1"), (r"[$^?]", ""),
)  # fmt: skip
"""Patterns in a path that is a regular expression, and what a request has in their place."""


@dataclass(frozen=True, slots=True)
class RoutedPath:
    """One path of one rule of an Ingress.

    Attributes:
        host: The host of the rule. A wildcard begins with `*.`; a rule for every host has an empty one.
        path: The path as written.
        kind: The path type: Exact, Prefix or ImplementationSpecific.
        tls: True if the host has a certificate.
        annotations: Name → value of the Ingress's ingress-nginx annotations, without their prefix.

    """

    host: str
    path: str
    kind: str
    tls: bool
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def sent_host(self) -> str:
        """The host that requests to this path name: `*.shop.example` → `any.shop.example`, and `any.lab.test` without a host."""
        return self.host.replace("*", "any", 1) if self.host else "any.lab.test"

    @property
    def is_pattern(self) -> bool:
        """True if ingress-nginx reads this path as a regular expression."""
        return self.annotations.get("use-regex") == "true" or "rewrite-target" in self.annotations

    @property
    def sample(self) -> str:
        """A path that the route matches: the path itself or, for a regular expression, a text that it matches.

        It is empty if no such text could be made.
        """
        if not self.is_pattern:
            return self.path
        text = self.path
        for pattern, replacement in _LITERALS:
            text = re.sub(pattern, replacement, text)
        try:
            return text if re.match(self.path, text, re.IGNORECASE) else ""
        except re.error:
            return ""


def make_request(
    case: str,
    about: str,
    host: str,
    target: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    **options: Any,
) -> RawRequest:
    """Make an HTTP/1.1 request with a Host header and, if it has a body, a Content-Length header.

    Args:
        case: The name of the edge case that it tries, such as `host-port`.
        about: What it tries, in words.
        host: The host, which may have a port.
        target: The target of the request line.
        method: The method.
        headers: Further headers.
        body: The body.
        **options: Further fields of `RawRequest`.

    """
    fields = {"Host": host, **(headers or {})}
    if body and "Content-Length" not in fields:
        fields["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    host_name = host.rsplit(":", 1)[0] if re.search(r":\d+$", host) else host
    return RawRequest(case, about, host_name, "\r\n".join(lines).encode("latin-1", "replace"), body, **options)


# -- from Ingresses -----------------------------------------------------------------------------------------------


def generate(paths: Sequence[RoutedPath]) -> Iterator[RawRequest]:
    """Yield the requests that verify a user's Ingresses: some for each path, each host, and each annotation with an effect."""
    hosts = {path.sent_host: path for path in reversed(paths)}
    for path in (path for path in paths if path.sample):
        siblings = [other for other in paths if other.host == path.host and other.path != path.path]
        first = hosts[path.sent_host] is path
        requests = chain(
            _of_path(path, siblings), _of_host(path.sent_host, path) if first else (), _of_annotations(path)
        )
        keys = tuple(f"@{name}" for name in path.annotations)  # any of them may be the reason of a difference
        yield from (replace(request, keys=(*request.keys, *keys)) for request in requests)


def _of_path(path: RoutedPath, siblings: Sequence[RoutedPath]) -> Iterator[RawRequest]:
    sample, kind = path.sample, "a regular expression" if path.is_pattern else f"type {path.kind}"
    stem, slashed = sample.rstrip("/"), sample.endswith("/")
    encoded = re.sub(r"[a-z]", lambda letter: f"%{ord(letter[0]):02x}", sample, count=1)
    tried = {
        "path": ("as it is written", sample),
        "slash": (f"{'without its' if slashed else 'with a'} trailing slash", stem if slashed else f"{sample}/"),
        "continued": ("that goes on without a slash", f"{sample}x"),
        "encoded": ("with a letter percent-encoded", encoded),
        "case": ("in the other case", sample.swapcase()),
        "below": ("with more below it, and a query", f"{stem}/lab/a%20b?x=1&y=%2F&z"),
        "redirect": ("whose backend sends a redirect", f"{sample}?lab=redirect"),
    }
    slug = "regex" if path.is_pattern else path.kind.lower()
    yield from (
        make_request(f"{slug}-{name}", f"a path of {kind} {about}", path.sent_host, target, tls=path.tls)
        for name, (about, target) in tried.items()
        if sample != "/" or name in ("path", "below", "redirect")
    )
    about = f"a POST to a path of {kind}"
    yield make_request(f"{slug}-post", about, path.sent_host, sample, "POST", body=b"a=1&b=2", tls=path.tls)
    for name, back in (("dots", "/../"), ("encoded-dots", "/%2e%2e/"), ("encoded-slash", "/..%2f")):
        for sibling in siblings[:2]:
            target = f"{stem}{back}{sibling.sample.lstrip('/')}"
            about = f"from one route to another by {back}"
            yield make_request(f"sibling-{name}", about, path.sent_host, target, tls=path.tls)
    if path.tls:
        keys = ("ssl-redirect", "force-ssl-redirect", "http-redirect-code", "@ssl-redirect")
        about = "a host with a certificate, without TLS"
        yield make_request("plain-http", about, path.sent_host, f"{sample}?a=1", keys=keys)


def _of_host(host: str, path: RoutedPath) -> Iterator[RawRequest]:
    target = path.sample
    yield from (
        make_request(case, about, name, sent, tls=path.tls)
        for case, about, name, sent in (
            ("no-such-path", "a path that no rule has", host, "/lab-no-such-path"),
            ("host-port", "a host with a port", f"{host}:8080", target),
            ("host-case", "a host in capitals", host.upper(), target),
            ("host-dot", "a host with a dot at its end", f"{host}.", target),
            ("host-below", "a host below the host", f"below.{host}", target),
        )
    )
    if path.tls:
        yield make_request("no-sni", "a TLS handshake without a server name", host, target, tls=True, sni=False)


def _of_annotations(path: RoutedPath) -> Iterator[RawRequest]:
    """Yield the requests that show the effect of annotations on a route's Ingress, such as one with the header of a canary."""
    notes = path.annotations
    header, cookie = notes.get("canary-by-header"), notes.get("canary-by-cookie")
    allowed = notes.get("cors-allow-origin", "*").split(",")[0].strip().replace("*.", "any.")
    origins = (
        ["https://foreign.example", *([allowed] if allowed != "*" else [])]
        if notes.get("enable-cors") == "true"
        else []
    )
    asks = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "X-A"}
    passwords = (("right", PASSWORD), ("wrong", "wrong")) if {"auth-type", "auth-url"} & notes.keys() else ()
    ranges = [name for name in notes if name.endswith("source-range")]
    sticky = "session-cookie-name" in notes or notes.get("affinity") == "cookie"
    limit = parse_size(notes.get("proxy-body-size", "")) or 0
    bodies = (("body-limit", limit), ("body-beyond-limit", limit + 1)) if 0 < limit <= LARGEST_BODY else ()
    values = ("always", "never", notes.get("canary-by-header-value", "always"), "other")
    tries: list[tuple[str, str, str, dict[str, Any]]] = [
        *(
            ("canary-header", f"the canary's header with {text}", "canary", {"headers": {header: text}})
            for text in (dict.fromkeys(values) if header else ())
        ),
        *(
            ("canary-cookie", f"the canary's cookie with {text}", "canary", {"headers": {"Cookie": f"{cookie}={text}"}})
            for text in (("always", "never") if cookie else ())
        ),
        *(
            (
                f"auth-{word}",
                f"a name with the {word} password",
                "auth-type",
                {"headers": {"Authorization": f"Basic {base64.b64encode(f'{USER}:{secret}'.encode()).decode()}"}},
            )
            for word, secret in passwords
        ),
        *(
            (
                "cors-preflight",
                "a preflight of CORS",
                "enable-cors",
                {"method": "OPTIONS", "headers": {"Origin": origin, **asks}},
            )
            for origin in origins
        ),
        *(
            ("cors-origin", "a request with an Origin", "enable-cors", {"headers": {"Origin": origin}})
            for origin in origins
        ),
        *(
            (
                "source-range",
                "an address of the list in X-Forwarded-For",
                name,
                {"headers": {"X-Forwarded-For": re.split(r"[,/]", notes[name])[0].strip()}},
            )
            for name in ranges
        ),
        *(
            (case, f"a body of {size:,} bytes", "proxy-body-size", {"method": "POST", "body": bytes(size)})
            for case, size in bodies
        ),
        *(
            ("affinity", "a cookie of affinity that nobody set", "affinity", {"headers": {"Cookie": f"{name}=foreign"}})
            for name in ([notes.get("session-cookie-name", "INGRESSCOOKIE")] if sticky else [])
        ),
    ]
    yield from (
        make_request(case, about, path.sent_host, path.sample, tls=path.tls, keys=(f"@{key}",), **more)
        for case, about, key, more in tries
    )
    if "app-root" in notes:
        yield make_request("app-root", "the root of a host", path.sent_host, "/", tls=path.tls, keys=("@app-root",))
    others = [("server-alias", alias) for alias in re.findall(r"[\w.-]+", notes.get("server-alias", ""))]
    www = path.host.removeprefix("www.") if path.host.startswith("www.") else f"www.{path.host}"
    others += [("from-to-www-redirect", www)] * (notes.get("from-to-www-redirect") == "true")
    yield from (
        make_request(key, f"another name of a host, by {key}", host, path.sample, keys=(f"@{key}",))
        for key, host in others
    )


def parse_size(text: str) -> int | None:
    """Return the bytes of a size of nginx: `8m` → 8388608; None if the text is not a size."""
    match = re.fullmatch(r"(\d+)([kmg]?)", text.strip().lower())
    return int(match[1]) * _SIZE[match[2]] if match else None


# -- from the catalogue -------------------------------------------------------------------------------------------


@cache
def load_catalogue() -> tuple[dict[str, str], ...]:
    """Return the rows of the catalogue of edge cases, in their order, each as column → text.

    The columns are:

    - `case`: a unique name.
    - `head`: the request line and headers without the empty line.
    - `body`: `-` for none, a text, or a number of bytes.
    - `options`: `tls`, `nosni`, `waits`, `raw` (the head is complete), `tlshost`, and `h2` or a version such as `TLSv1.1`.
    - `keys`: the settings of ingress-nginx that the case is about.
    - `about`: what the case tries, in words.
    """
    return tuple(read_tsv(CATALOGUE))


def make_catalogue(limit: int) -> list[RawRequest]:
    """Return the requests of the catalogue of edge cases.

    Args:
        limit: The largest body that ingress-nginx accepts, in bytes; 0 for any. A limit larger than `LARGEST_BODY` is
            not tried.

    """
    tried = 0 < limit <= LARGEST_BODY
    return [_make_row(row, limit) for row in load_catalogue() if tried or row["body"] not in ("{limit}", "{beyond}")]


def _make_row(row: Mapping[str, str], limit: int) -> RawRequest:
    options = set(row["options"].split())
    host = TLS_HOST if options & {"tls", "nosni", "tlshost"} else CATALOGUE_HOST
    body = row["body"].replace("{limit}", str(limit)).replace("{beyond}", str(limit + 1))
    data = b"" if body == "-" else bytes(int(body)) if body.isdigit() else _unescape(body)
    head = _unescape(row["head"].replace("{host}", host).replace("{length}", str(len(data))))
    head = re.sub(rb"\{(\w)\*(\d+)\}", lambda match: match[1] * int(match[2]), head)
    return RawRequest(
        row["case"], row["about"], host, head + (b"" if "raw" in options or not head else b"\r\n"), data,
        tls=bool(options & {"tls", "nosni"}), sni="nosni" not in options, waits="waits" in options,
        tls_version=next((option for option in options if option.startswith("TLSv")), ""),
        alpn=("h2", "http/1.1") if "h2" in options else ("http/1.1",), keys=tuple(row["keys"].split()),
    )  # fmt: skip


def _unescape(text: str) -> bytes:
    return codecs.decode(text, "unicode_escape").encode("latin-1")


# -- from a user's file -------------------------------------------------------------------------------------------


def read_requests(place: str, text: str) -> list[RawRequest]:
    """Read a user's requests from a HAR file, or from lines `METHOD URL`.

    Indented lines `Header: value` and `> body` may follow each such line.

    Args:
        place: The file's name for error messages.
        text: The file's content.

    Raises:
        UsageError: A line or an entry is not a request.

    """
    if text.lstrip().startswith("{"):
        return list(_read_har(place, text))
    entries = list[tuple[str, str, dict[str, str], list[str]]]()
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#")
    for number, line in lines:
        name, colon, value = line.strip().partition(":")
        if not line[0].isspace():
            entries.append((f"{place}:{number}", line.strip(), {}, []))
        elif not entries or not (colon or name.startswith(">")):
            fault = f"{line.strip()!r} is no header of a request before it"
            raise UsageError(
                f"{place}:{number}", fault, "`GET https://HOST/PATH`, then indented `Name: value` or `> body`"
            )
        elif name.startswith(">"):
            entries[-1][3].append(line.strip()[1:].lstrip())
        else:
            entries[-1][2][name] = value.strip()
    return [
        _from_url(spot, line.rpartition(" ")[0] or "GET", line.rpartition(" ")[2], headers, "\n".join(body).encode())
        for spot, line, headers, body in entries
    ]


def _read_har(place: str, text: str) -> Iterator[RawRequest]:
    try:
        for number, entry in enumerate(json.loads(text)["log"]["entries"], 1):
            sent = entry["request"]
            headers = {
                item["name"]: item["value"]
                for item in sent.get("headers", [])
                if item["name"][:1] != ":" and item["name"].lower() not in ("host", "content-length", "connection")
            }
            body = (sent.get("postData") or {}).get("text", "").encode()
            yield _from_url(f"{place}: entry {number}", sent["method"], sent["url"], headers, body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fault = f"is no HAR file: {type(error).__name__} {error}"
        raise UsageError(place, fault, "a browser's network panel saves one: Save all as HAR") from None


def _from_url(place: str, method: str, url: str, headers: Mapping[str, str], body: bytes) -> RawRequest:
    parts = urlsplit(url)
    is_url = parts.scheme in ("http", "https") and parts.hostname
    refuse_if(not is_url, place, f"expected METHOD URL, got {url!r}", "such as GET https://shop.example/cart?x=1")
    target = url.split(parts.netloc, 1)[1].split("#")[0] or "/"
    target = target if target.startswith("/") else f"/{target}"
    return make_request(
        "yours", f"of {place}", parts.netloc.rpartition("@")[2], target, method, headers, body,
        tls=parts.scheme == "https",
    )  # fmt: skip


def unique(requests: Iterable[RawRequest]) -> list[RawRequest]:
    """Return the requests in their order, without those that send the same bytes as an earlier one."""
    return list(
        {(item.head, item.body, item.tls, item.sni, item.waits): item for item in reversed([*requests])}.values()
    )[::-1]
