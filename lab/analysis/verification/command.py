"""A request as a command line: by curl, or by printf and nc where curl would send other bytes.

    curl -i --path-as-is -H User-Agent: -H Accept: -H 'X_A: 1' --connect-to "::$ADDRESS:" http://shop.example/api

`ADDRESS` is the variable with the address of the proxy. Long runs of one letter are written by a command of their own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cache

from lab.model.exchanges import RawRequest

_RUN = re.compile(r"([A-Za-z0-9])\1{199,}")
_HEAD = re.compile(
    r"(?P<method>[A-Za-z]+) (?P<target>[!-~]+) HTTP/1\.(?P<minor>[01])(\r\n[!-9;-~]+:( [ -~]*)?)*\r\n\r\n"
)
"""The form of a head that curl can send."""
_QUOTED = re.compile(r"[{}\[\]\\^|\"<>'`#]|^[^/]")
"""The characters and beginnings of a URL path that curl would change."""


@cache
def write_command(request: RawRequest) -> str:
    """Return the shell command that sends a request to the proxy at `$ADDRESS`: by curl, `printf … | nc`, or openssl.

    curl is used if it would send exactly the same bytes as the request has.
    """
    server = f"-servername {request.host}" if request.sni else "-noservername"
    if not request.head:
        version = f" -{request.tls_version.replace('TLSv', 'tls').replace('.', '_')}" if request.tls_version else ""
        return f'openssl s_client -connect "$ADDRESS:443" {server}{version} -alpn {",".join(request.alpn)} </dev/null'
    head = request.head.decode("latin-1")
    headers = [
        (name, value) for name, value in request.headers if name != "Host" or value != request.host or not request.sni
    ]
    hosts = [value for name, value in request.headers if name == "Host"]
    lengths = [value for name, value in headers if name == "Content-Length"]
    framed = lengths == ([str(len(request.body))] if request.body else []) and "Transfer-Encoding" not in dict(headers)
    match = _HEAD.fullmatch(head)
    if match and len(hosts) == 1 and framed and match["method"] != "CONNECT":
        return _write_curl(request, match, headers)
    to = f'openssl s_client -quiet -connect "$ADDRESS:443" {server}' if request.tls else 'nc "$ADDRESS" 80'
    return f"printf {_write(head + request.body.decode('latin-1'), _escape)} | {to}"


def _write_curl(request: RawRequest, match: re.Match[str], headers: list[tuple[str, str]]) -> str:
    method, target, empty = match["method"], match["target"], not request.body.strip(b"\0")
    odd = _QUOTED.search(target)
    sent = {name.lower() for name, _ in headers}
    added = ("User-Agent", "Accept", *(["Content-Type", "Expect"] if request.body else []))  # by curl, unless left out
    lines = [f"{name}:" for name in added if name.lower() not in sent]
    lines += [f"{name}: {value}" if value else f"{name};" for name, value in headers if name != "Content-Length"]
    is_usual = method == ("POST" if request.body else "GET")
    words = [
        *("curl", "-i", "--path-as-is", "-0" if match["minor"] == "0" else "--http1.1"),
        *["-k"] * request.tls,
        *(["-g", "--request-target", target] if odd else []),
        *([] if is_usual else ["-I"] if method == "HEAD" else ["-X", method]),
        *(word for line in lines for word in ("-H", line)),
        *(["--data-binary", "@-" if empty else request.body.decode("latin-1")] if request.body else []),
    ]
    scheme, path = "https" if request.tls else "http", "/" if odd else target
    quoted = " ".join(_write(word, shlex.quote) for word in words)
    feeding = f"head -c {len(request.body)} /dev/zero | " if request.body and empty else ""
    if not request.sni:
        return f'{feeding}{quoted} "{scheme}://$ADDRESS{path}"'
    return f'{feeding}{quoted} --connect-to "::$ADDRESS:" {_write(f"{scheme}://{request.host}{path}", shlex.quote)}'


def _write(text: str, quote: Callable[[str], str]) -> str:
    """Quote a text for a shell; a command replaces each row of 200 or more equal letters, to keep the line short.

    Args:
        text: The text.
        quote: The function that quotes the parts between such rows of letters.

    """
    parts = _RUN.split(text)
    runs = [f"\"$(head -c {len(match[0])} /dev/zero | tr '\\0' {match[1]})\"" for match in _RUN.finditer(text)]
    texts = [quote(part) if part or len(parts) == 1 else "" for part in parts[::2]]
    return "".join(f"{before}{run}" for before, run in zip(texts, [*runs, ""], strict=True))


def _escape(text: str) -> str:
    """Return a text as a quoted argument for printf, with control characters and quotes as escapes."""
    special = {"\r": r"\r", "\n": r"\n", "\\": r"\\", "%": "%%", "'": r"\047"}
    written = (special.get(letter) or (letter if " " <= letter <= "~" else f"\\{ord(letter):03o}") for letter in text)
    return f"'{''.join(written)}'"
