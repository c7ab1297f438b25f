"""A client that sends a request exactly as its bytes are, and reads the answer without any library that would normalise it.

Every request has its own connection. After the answer, a second request on the same connection shows whether the connection is kept:
that is certain, where waiting for the end of a connection depends on the time waited.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping

from lab.model.exchanges import Answer, Headers, RawRequest
from lab.systems.manifests.certificates import describe_certificate

TIMEOUT_S, CONTINUE_S = 4.0, 1.0
"""The seconds that an answer may take, and that the client waits for `100 Continue`."""
KEPT_HEADER = "X-Lab-Kept"
"""The header of the request that shows whether a connection is kept: a backend's record of it counts for nothing."""
_WITHOUT_BODY = (204, 304)

Connect = Callable[[bool], socket.socket]
"""A function that opens a TCP connection to a system: to its port with TLS if the argument is True."""


class _Stream:
    """The bytes that a server sends, read with a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.data, self.ended = sock, b"", False
        self.deadline = time.monotonic() + TIMEOUT_S

    def more(self) -> bool:
        """Read more bytes; return False at the end of the connection. Raises TimeoutError at the deadline."""
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        try:
            part = self._sock.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            part = b""
        self.data += part
        self.ended = not part
        return bool(part)

    def until(self, mark: bytes) -> bytes:
        """Return the bytes up to a mark, without the mark. Raises EOFError where it never comes."""
        while mark not in self.data:
            if not self.more():
                raise EOFError
        taken, _, self.data = self.data.partition(mark)
        return taken

    def exactly(self, size: int) -> bytes:
        """Return so many bytes. Raises EOFError where the connection ends before."""
        while len(self.data) < size:
            if not self.more():
                raise EOFError
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def rest(self) -> bytes:
        """Return all bytes until the connection ends."""
        while self.more():
            pass
        taken, self.data = self.data, b""
        return taken


def exchange(connect: Connect, request: RawRequest) -> Answer:
    """Send a request on a new connection and return the answer; whatever goes wrong is in `Answer.error`."""
    tls: dict[str, str] = {}
    try:
        with connect(request.tls) as raw:
            raw.settimeout(TIMEOUT_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = _wrap(raw, request, tls) if request.tls else raw
            if not request.head:
                return Answer(tls=tls)
            return _talk(sock, request, tls)
    except ssl.SSLError as error:
        return Answer(tls=tls, error=f"TLS: {(error.reason or 'handshake failed').lower().replace('_', ' ')}")
    except TimeoutError:
        return Answer(tls=tls, error=f"no answer in {TIMEOUT_S:g} s")
    except (EOFError, OSError):
        return Answer(tls=tls, error="the connection ended without an answer")


def _wrap(raw: socket.socket, request: RawRequest, tls: dict[str, str]) -> ssl.SSLSocket:
    """Return the connection with TLS, and describe the handshake in `tls`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(request.alpn))
    if request.tls_version:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion[request.tls_version.replace(".", "_")]
    sock = context.wrap_socket(raw, server_hostname=request.host if request.sni else None)
    der = sock.getpeercert(binary_form=True)
    certificate = describe_certificate(der) if der else {}
    tls |= {
        "version": sock.version() or "",
        "cipher": (sock.cipher() or ("",))[0],
        "protocol": sock.selected_alpn_protocol() or "none",
        "certificate": ", ".join(certificate.values()),
    }
    return sock


def _talk(sock: socket.socket, request: RawRequest, tls: Mapping[str, str]) -> Answer:
    stream, interim = _Stream(sock), list[int]()
    _send(sock, request.head + (b"" if request.waits else request.body))
    head = b""
    if request.waits:
        stream.deadline = time.monotonic() + CONTINUE_S
        try:
            head = stream.until(b"\r\n\r\n")
        except TimeoutError:
            pass  # no 100 Continue: the body is sent all the same, as RFC 9110 allows
        stream.deadline = time.monotonic() + TIMEOUT_S
        if not head or _status(head) < 200:
            _send(sock, request.body)
    head = head or stream.until(b"\r\n\r\n")
    while (status := _status(head)) < 200 and status != 101:
        interim.append(status)
        head = stream.until(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers: Headers = tuple(_split(line) for line in lines[1:])
    answer = Answer(status, lines[0].split(" ")[0], headers, interim=tuple(interim), tls=tls)
    body, trailers, framing = _read_body(stream, request, answer)
    closes = framing == "close" or "close" in answer.header("connection").lower() or status == 101
    kept = not closes and _is_kept(sock, request, stream)
    return Answer(status, answer.version, headers, body, trailers, framing, tuple(interim), kept, tls)


def _status(head: bytes) -> int:
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    if not parts[0].startswith(b"HTTP/") or len(parts) < 2 or not parts[1].isdigit():
        raise EOFError
    return int(parts[1])


def _split(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.strip()


def _send(sock: socket.socket, data: bytes) -> None:
    """Send bytes. A server that has answered and closed before it read all has its answer read nevertheless."""
    try:
        sock.sendall(data)
    except (ConnectionError, ssl.SSLError):
        pass


def _read_body(stream: _Stream, request: RawRequest, answer: Answer) -> tuple[bytes, Headers, str]:
    """Return the body, the trailers, and how the end of the body shows."""
    if request.method == "HEAD" or answer.status in _WITHOUT_BODY or answer.status == 101:
        return b"", (), "none"
    if "chunked" in answer.header("transfer-encoding").lower():
        body = b""
        while size := int(stream.until(b"\r\n").split(b";")[0], 16):
            body += stream.exactly(size + 2)[:-2]
        trailers = list[tuple[str, str]]()
        while line := stream.until(b"\r\n"):
            trailers.append(_split(line.decode("latin-1")))
        return body, tuple(trailers), "chunked"
    if (length := answer.header("content-length")).isdigit():
        return stream.exactly(int(length)), (), "length"
    return stream.rest(), (), "close"


def _is_kept(sock: socket.socket, request: RawRequest, stream: _Stream) -> bool:
    """Return whether a second request on the connection is answered."""
    stream.deadline = time.monotonic() + TIMEOUT_S
    head = f"GET / HTTP/1.1\r\nHost: {request.host}\r\n{KEPT_HEADER}: 1\r\nConnection: close\r\n\r\n"
    _send(sock, head.encode("latin-1"))
    try:
        return bool(stream.data) or stream.more()
    except TimeoutError:
        return False
