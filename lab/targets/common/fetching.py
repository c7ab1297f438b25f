"""One HTTP request over a connection that somebody else has made, with or without TLS: what targets' `fetch` share.

Refuses to verify anything: what is there is told. Of a TLS handshake that includes the group (X25519, P-256, …) by which it came to its keys,
from what the server sent in clear, as Python's ssl has no word for it before 3.15:

    ServerHello … 00 33 | 00 24 | 00 1d …    → "X25519"    TLS 1.3, the extension key_share (RFC 8446, 4.2.8)
    ServerKeyExchange 03 | 00 17 …           → "P-256"     TLS 1.2, a named curve (RFC 8422, 5.4)
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from urllib3.util.ssltransport import SSLTransport

from lab.model.endpoint import Endpoint, Response
from lab.systems.manifests import certificates

KEPT_BYTES = 1 << 16
"""More than a server's handshake has, its certificates included."""
HANDSHAKE = 22
"""Type of a record; whatever else comes, keys have been changed and nothing more is in clear."""
SERVER_HELLO, SERVER_KEY_EXCHANGE = 2, 12
KEY_SHARE = 51
NAMED_CURVE = 3
_GROUPS: Mapping[int, str] = {
    23: "P-256", 24: "P-384", 25: "P-521", 29: "X25519", 30: "X448",
    256: "ffdhe2048", 257: "ffdhe3072", 258: "ffdhe4096", 259: "ffdhe6144", 260: "ffdhe8192",
    4587: "SecP256r1MLKEM768", 4588: "X25519MLKEM768", 4589: "SecP384r1MLKEM1024",
}  # fmt: skip
"""IANA, TLS Supported Groups; NIST's curves by NIST's names."""


def place(endpoint: Endpoint) -> tuple[str, int]:
    """(host or address, port) that the endpoint's URL names."""
    url = urlsplit(endpoint.base_url)
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def fetch(
    connected: socket.socket,
    endpoint: Endpoint,
    path: str,
    headers: Mapping[str, str] | None,
    timeout_s: float,
) -> Response:
    """GET on this connection, which is closed afterwards; `body` as it came. Raises OSError, for what is no HTTP too.

    `timeout_s` is for each wait.
    """
    connected.settimeout(timeout_s)
    connection = http.client.HTTPConnection(*place(endpoint))
    connection.sock = connected
    tls: Mapping[str, str] = {}
    try:
        if urlsplit(endpoint.base_url).scheme == "https":
            connection.sock = heard = _Heard(connected)
            connection.sock, tls = _encrypted(heard, endpoint.host)
        connection.request("GET", path, headers={"Host": endpoint.host, "Connection": "close", **(headers or {})})
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, answer.read(), named, tls)
    except http.client.HTTPException as error:
        raise OSError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()


class _Heard(socket.socket):
    """A connection, taken over from another socket's object, that keeps the first that it receives."""

    def __init__(self, connected: socket.socket) -> None:
        timeout_s = connected.gettimeout()
        super().__init__(fileno=connected.detach())
        self.settimeout(timeout_s)
        self.heard = bytearray()

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        got = super().recv(bufsize, flags)
        if len(self.heard) < KEPT_BYTES:
            self.heard += got
        return got

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        if data:  # SSLTransport sends nothing before each read, which breaks on a server that has answered and gone
            super().sendall(data, flags)


def _encrypted(connection: _Heard, host: str) -> tuple[SSLTransport, Mapping[str, str]]:
    """The connection with TLS, and what it agreed on. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    encrypted = SSLTransport(connection, context, server_hostname=host)  # ssl's own reads past our socket's `recv`
    cipher, der = (encrypted.cipher() or ("",))[0], encrypted.getpeercert(binary_form=True)
    agreed = {"version": encrypted.version(), "cipher": cipher, "group": group(connection.heard, cipher)}
    told = {name: value for name, value in agreed.items() if value}
    return encrypted, told | (certificates.described(der) if der else {})


def group(heard: bytes | bytearray, cipher: str) -> str | None:
    """Of the server's side of a handshake that came to this cipher, as OpenSSL calls it; None without such a group."""
    for kind, body in _messages(heard):
        code = b""
        if kind == SERVER_HELLO:
            code = _extension(body, KEY_SHARE)[:2]
        elif kind == SERVER_KEY_EXCHANGE and cipher.startswith("ECDHE-") and body[0] == NAMED_CURVE:
            code = body[1:3]
        if code:
            number = int.from_bytes(code)
            return _GROUPS.get(number, f"group {number}")
    return None


def _messages(heard: bytes | bytearray) -> Iterator[tuple[int, bytes]]:
    """(type, body) of those that came before keys were changed; one may lie in several records, and several in one."""
    clear = bytearray()
    while heard and heard[0] == HANDSHAKE:
        end = 5 + int.from_bytes(heard[3:5])
        clear += heard[5:end]
        heard = heard[end:]
    while len(clear) >= 4:
        end = 4 + int.from_bytes(clear[1:4])
        yield clear[0], bytes(clear[4:end])
        clear = clear[end:]


def _extension(hello: bytes, wanted: int) -> bytes:
    """What a ServerHello says under that number; empty if nothing."""
    rest = hello[
        34 + 1 + hello[34] + 5 :
    ]  # after version and random the session's id, then cipher, compression, length
    while rest:
        end = 4 + int.from_bytes(rest[2:4])
        if int.from_bytes(rest[:2]) == wanted:
            return rest[4:end]
        rest = rest[end:]
    return b""
