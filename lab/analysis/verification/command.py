"""A request as a command line: by curl, or by printf and nc where curl would send other bytes.

    curl -i --path-as-is -H User-Agent: -H Accept: -H 'X_A: 1' --connect-to "::$ADDRESS:" http://shop.example/api

`ADDRESS` is the variable with the address of the proxy. Long runs of one letter are written by a command of their own.
"""

from __future__ import annotations

import re
import shlex

from lab.model.exchanges import RawRequest

_RUN = re.compile(r"([A-Za-z0-9])\1{199,}")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_ADDRESS = '"$ADDRESS"'


def write_command(request: RawRequest) -> str:
    """Return the command that sends a request to the proxy at `$ADDRESS`."""
    if not request.head:
        version = f" -{request.tls_version.replace('TLSv', 'tls').replace('.', '_')}" if request.tls_version else ""
        alpn = f" -alpn {','.join(request.alpn)}"
        return f'openssl s_client -connect "$ADDRESS:443" -servername {request.host}{version}{alpn} </dev/null'
    return _write_curl(request) or _write_printf(request)


def _write_curl(request: RawRequest) -> str:
    """Return the command of curl; empty if curl cannot send these bytes."""
    lines = request.head.decode("latin-1").split("\r\n")
    parts, headers = lines[0].split(" "), [line.partition(":") for line in lines[1:-2]]
    hosts = [value for name, _, value in headers if name == "Host"]
    text = request.head.decode("latin-1")
    exact = len(parts) == 3 and lines[-2:] == ["", ""] and parts[2] in ("HTTP/1.1", "HTTP/1.0") and len(hosts) == 1
    plain = text.isascii() and text.replace("\r\n", "").isprintable() and parts[1:] and _TOKEN.fullmatch(parts[0])
    named = all(_TOKEN.fullmatch(name) and (value[:1] in ("", " ")) for name, _, value in headers)
    length = next((value.strip() for name, _, value in headers if name.lower() == "content-length"), None)
    coded = any(name.lower() == "transfer-encoding" for name, _, _ in headers)
    framed = not coded and (length == str(len(request.body)) if request.body or length else True)
    if not (exact and plain and named and framed) or parts[0] == "CONNECT":
        return ""
    words = ["curl", "-i", "--path-as-is", *(["-k"] if request.tls else []), *(["-0"] if parts[2] == "HTTP/1.0" else ["--http1.1"])]
    if parts[0] == "HEAD":
        words.append("-I")
    elif parts[0] != ("POST" if request.body else "GET"):
        words += ["-X", parts[0]]
    sent = {name.lower() for name, _, _ in headers}
    for name in ("User-Agent", "Accept", *(["Content-Type"] if request.body else [])):
        if name.lower() not in sent:
            words += ["-H", f"{name}:"]
    host = hosts[0].strip()
    url_host = request.host if request.sni else "$ADDRESS"
    for name, _, value in headers:
        if name == "Host" and host == request.host and request.sni:
            continue
        if name.lower() == "content-length" and request.body:
            continue
        words += ["-H", f"{name}:{value}" if value.strip() else f"{name};"]
    target = parts[1]
    if not target.startswith("/") or "#" in target or re.search(r"[{}\[\]\\^|\"<>' ]", target):
        words += ["-g", "--request-target", target]
        target = "/"
    scheme = "https" if request.tls else "http"
    quoted = [_quote(word) for word in words]
    if request.body:
        zero = not request.body.strip(b"\0")
        quoted += ["--data-binary", "@-" if zero else _quote(request.body.decode("latin-1"))]
    where = ["--connect-to", '"::$ADDRESS:"'] if request.sni else []
    url = _quote(f"{scheme}://{url_host}{target}") if request.sni else f'"{scheme}://$ADDRESS{target}"'
    feeding = f"head -c {len(request.body)} /dev/zero | " if request.body and not request.body.strip(b"\0") else ""
    return feeding + " ".join([*quoted, *where, url])


def _quote(word: str) -> str:
    """Quote a word for a shell; a long run of one letter is written by a command."""
    pieces, last = list[str](), 0
    for match in _RUN.finditer(word):
        run = f"\"$(head -c {len(match[0])} /dev/zero | tr '\\0' {match[1]})\""
        pieces += [shlex.quote(word[last : match.start()]) if match.start() > last else "", run]
        last = match.end()
    return "".join([*pieces, shlex.quote(word[last:]) if last < len(word) or not pieces else ""])


def _write_printf(request: RawRequest) -> str:
    """Return a command that sends the bytes as they are, with nc, or with openssl over TLS."""
    data = (request.head + request.body).decode("latin-1")
    pieces, last = list[str](), 0
    for match in _RUN.finditer(data):
        run = f"\"$(head -c {len(match[0])} /dev/zero | tr '\\0' {match[1]})\""
        pieces += [_escape(data[last : match.start()]), run]
        last = match.end()
    text = "".join([*pieces, _escape(data[last:])])
    name = f" -servername {request.host}" if request.sni else " -noservername"
    to = f'openssl s_client -quiet -connect "$ADDRESS:443"{name}' if request.tls else f"nc {_ADDRESS} 80"
    return f"printf {text} | {to}"


def _escape(text: str) -> str:
    """Return a text as an argument for printf."""
    escaped = "".join(
        {"\r": r"\r", "\n": r"\n", "\\": r"\\", "%": "%%", "'": r"\047"}.get(letter)
        or (letter if " " <= letter <= "~" else f"\\{ord(letter):03o}")
        for letter in text
    )
    return f"'{escaped}'" if escaped else ""
