"""The group (X25519, P-256, …) by which a TLS handshake came to its keys, from what the server sent in clear.

    ServerHello … 00 33 | 00 24 | 00 1d …    → "X25519"    TLS 1.3, the extension key_share (RFC 8446, 4.2.8)
    ServerKeyExchange 03 | 00 17 …           → "P-256"     TLS 1.2, a named curve (RFC 8422, 5.4)

Python's ssl has no word for it before 3.15. Refuses to guess: None where nothing was said.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Any

KEPT_BYTES = 1 << 16
"""More than a server's handshake has, its certificates included."""
HANDSHAKE = 22
"""Type of a record; whatever else comes, keys have been changed and nothing more is in clear."""
SERVER_HELLO, SERVER_KEY_EXCHANGE = 2, 12
KEY_SHARE = 51
NAMED_CURVE = 3
_NAMES: Mapping[int, str] = {
    23: "P-256", 24: "P-384", 25: "P-521", 29: "X25519", 30: "X448",
    256: "ffdhe2048", 257: "ffdhe3072", 258: "ffdhe4096", 259: "ffdhe6144", 260: "ffdhe8192",
    4587: "SecP256r1MLKEM768", 4588: "X25519MLKEM768", 4589: "SecP384r1MLKEM1024",
}  # fmt: skip
"""IANA, TLS Supported Groups; NIST's curves by NIST's names."""


class Heard(socket.socket):
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


def group(heard: bytes | bytearray, cipher: str) -> str | None:
    """Of the server's side of a handshake that came to this cipher, as OpenSSL calls it; None without such a group."""
    for kind, body in _messages(heard):
        if kind == SERVER_HELLO and (share := _extension(body, KEY_SHARE)):
            return _named(share[:2])
        if kind == SERVER_KEY_EXCHANGE and cipher.startswith("ECDHE-") and body[0] == NAMED_CURVE:
            return _named(body[1:3])
    return None


def _named(code: bytes) -> str:
    number = int.from_bytes(code)
    return _NAMES.get(number, f"group {number}")


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
    # After version and random the session's id, then cipher, compression, length.
    rest = hello[34 + 1 + hello[34] + 5 :]
    while rest:
        end = 4 + int.from_bytes(rest[2:4])
        if int.from_bytes(rest[:2]) == wanted:
            return rest[4:end]
        rest = rest[end:]
    return b""
