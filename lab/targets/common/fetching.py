"""A function that sends one HTTP GET over an open connection, with or without TLS, and returns the response.

Certificates are not verified: the response only records facts about the TLS handshake. One of these facts is the key
exchange group (X25519, P-256, …). The group is read from the unencrypted bytes that the server sends, because Python's
ssl module does not report the group before 3.15:

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
"""The minimum number of received bytes that are stored: more than a server's handshake has, certificates included."""
HANDSHAKE = 22
"""The type of a handshake record. Any other type means that keys have changed and nothing more is in clear."""
SERVER_HELLO, SERVER_KEY_EXCHANGE = 2, 12
"""The types of the two handshake messages that name the group, in TLS 1.3 and TLS 1.2."""
KEY_SHARE = 51
"""The number of the TLS extension key_share."""
NAMED_CURVE = 3
"""The curve type of a ServerKeyExchange that names its curve."""
_GROUPS: Mapping[int, str] = {
    23: "P-256", 24: "P-384", 25: "P-521", 29: "X25519", 30: "X448",
    256: "ffdhe2048", 257: "ffdhe3072", 258: "ffdhe4096", 259: "ffdhe6144", 260: "ffdhe8192",
    4587: "SecP256r1MLKEM768", 4588: "X25519MLKEM768", 4589: "SecP384r1MLKEM1024",
}  # fmt: skip
"""The names of key exchange groups (IANA, TLS Supported Groups); NIST's curves have NIST's names."""


def split_address(endpoint: Endpoint) -> tuple[str, int]:
    """Return the host name or IP address, and the port number, of the endpoint's URL.

    Without a port in the URL, the port is 443 for https and 80 for http.
    """
    url = urlsplit(endpoint.base_url)
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def fetch(
    connected: socket.socket,
    endpoint: Endpoint,
    path: str,
    headers: Mapping[str, str] | None,
    timeout_s: float,
) -> Response:
    """Send a GET over an open connection, return the response, and close the connection.

    The response's body is not decompressed. For an https endpoint, TLS is negotiated first.

    Args:
        connected: The connected socket.
        endpoint: The URL and the host name of the request.
        path: The path to request.
        headers: Further request headers; None = none.
        timeout_s: The limit of each single read or write on the socket, in seconds.

    Raises:
        OSError: The request fails, or the answer is not HTTP.

    """
    connected.settimeout(timeout_s)
    connection = http.client.HTTPConnection(*split_address(endpoint))
    connection.sock = connected
    tls: Mapping[str, str] = {}
    try:
        if urlsplit(endpoint.base_url).scheme == "https":
            connection.sock = recording = _RecordingSocket(connected)
            connection.sock, tls = _wrap_in_tls(recording, endpoint.host)
        connection.request("GET", path, headers={"Host": endpoint.host, "Connection": "close", **(headers or {})})
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, response.read(), fields, tls)
    except http.client.HTTPException as error:
        raise OSError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()


class _RecordingSocket(socket.socket):
    """A socket that also stores the first bytes that it receives, in the attribute `heard`.

    The constructor takes over the connection of another socket object, which can no longer be used.
    """

    def __init__(self, connected: socket.socket) -> None:
        timeout_s = connected.gettimeout()
        super().__init__(fileno=connected.detach())
        self.settimeout(timeout_s)
        self.heard = bytearray()

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        received = super().recv(bufsize, flags)
        if len(self.heard) < KEPT_BYTES:
            self.heard += received
        return received

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        # SSLTransport sends nothing before each read, which breaks on a server that has answered and closed.
        if data:
            super().sendall(data, flags)


def _wrap_in_tls(connection: _RecordingSocket, host: str) -> tuple[SSLTransport, Mapping[str, str]]:
    """Make a TLS handshake over a connection, and return the TLS connection and facts about the handshake.

    Returns:
        The TLS connection, and name of the fact → text: `version`, `cipher`, `group` (of the key exchange), and facts
        about the server's certificate.

    Raises:
        OSError: The handshake fails.

    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # The wrapper of the ssl module itself would read without calling our socket's `recv`.
    encrypted = SSLTransport(connection, context, server_hostname=host)
    cipher, der = (encrypted.cipher() or ("",))[0], encrypted.getpeercert(binary_form=True)
    agreed = {
        "version": encrypted.version(),
        "cipher": cipher,
        "group": find_key_exchange_group(connection.heard, cipher),
    }
    present = {name: value for name, value in agreed.items() if value}
    return encrypted, present | (certificates.describe_certificate(der) if der else {})


def find_key_exchange_group(handshake: bytes | bytearray, cipher: str) -> str | None:
    """Return the name of the key exchange group (such as `X25519`) in a TLS handshake; None if no group was used.

    Args:
        handshake: The bytes that the server sent during the handshake.
        cipher: The cipher that client and server agreed on, by OpenSSL's name.

    """
    for kind, body in _read_messages(handshake):
        code = b""
        if kind == SERVER_HELLO:
            code = _find_extension(body, KEY_SHARE)[:2]
        elif kind == SERVER_KEY_EXCHANGE and cipher.startswith("ECDHE-") and body[0] == NAMED_CURVE:
            code = body[1:3]
        if code:
            number = int.from_bytes(code)
            return _GROUPS.get(number, f"group {number}")
    return None


def _read_messages(handshake: bytes | bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield (type, body) of each unencrypted TLS handshake message in the bytes that a server sent.

    A message may be split over several TLS records, and one record may contain several messages.
    """
    clear = bytearray()
    while handshake and handshake[0] == HANDSHAKE:
        end = 5 + int.from_bytes(handshake[3:5])
        clear += handshake[5:end]
        handshake = handshake[end:]
    while len(clear) >= 4:
        end = 4 + int.from_bytes(clear[1:4])
        yield clear[0], bytes(clear[4:end])
        clear = clear[end:]


def _find_extension(hello: bytes, number: int) -> bytes:
    """Return the content of the extension `number` in a TLS ServerHello message; empty if there is no such extension."""
    # The session id follows version and random; after it come cipher, compression and a length.
    extensions = hello[34 + 1 + hello[34] + 5 :]
    while extensions:
        end = 4 + int.from_bytes(extensions[2:4])
        if int.from_bytes(extensions[:2]) == number:
            return extensions[4:end]
        extensions = extensions[end:]
    return b""
