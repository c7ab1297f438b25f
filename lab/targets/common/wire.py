"""A client that sends the bytes of an HTTP request unchanged, and parses the answer without an HTTP library.

A library would normalise both. Every request has its own connection. After the answer, a second request is sent on the
same connection, to find out whether the server keeps the connection open. To wait for the end of the connection would
be less reliable, because the result would depend on the length of the wait.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lab.model.exchanges import Answer, Headers, RawRequest
from lab.systems.manifests.certificates import describe_certificate

TIMEOUT_S, CONTINUE_S = 2.0, 0.5
"""The seconds that an answer may take, and that the client waits for `100 Continue`."""
NO_ANSWER = "no answer"
"""The beginning of the error of an answer that did not come in time."""
KEPT_HEADER = "X-Lab-Kept"
"""The header that marks the second request, which only tests the connection; the backend's record of it is ignored."""
_END = b"\r\n\r\n"

Connect = Callable[[bool], socket.socket]
"""A function that opens a TCP connection to a system: to its port with TLS if the argument is True."""


class _Stream:
    """The bytes that a server sends over a socket, read with a deadline.

    Methods raise TimeoutError when the deadline passes, and EOFError when the connection ends too early.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.data, self.deadline = sock, b"", time.monotonic() + TIMEOUT_S

    def more(self) -> bool:
        """Read the next bytes into `data`; return False if the connection has ended."""
        self.sock.settimeout(max(self.deadline - time.monotonic(), 0.001))
        part = b""
        with suppress(ConnectionError, ssl.SSLError):
            part = self.sock.recv(1 << 16)
        self.data += part
        return bool(part)

    def take(self, size: Callable[[bytes], int]) -> bytes:
        """Remove the next bytes from the stream and return them, as many as `size` determines.

        Args:
            size: A function that gets the bytes received so far, and returns how many of them to take. A negative
                number means that more bytes must arrive first.

        """
        while (count := size(self.data)) < 0:
            if not self.more():
                raise EOFError
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def until(self, mark: bytes) -> bytes:
        """Remove all bytes up to the end of the byte sequence `mark` from the stream; return them without the mark."""
        return self.take(lambda data: data.find(mark) + len(mark) if mark in data else -1).removesuffix(mark)

    def exactly(self, number: int) -> bytes:
        """Remove the next `number` bytes from the stream and return them."""
        return self.take(lambda data: number if len(data) >= number else -1)


class _ChunkError(Exception):
    """A chunk of a body does not begin with its size in hexadecimal digits (RFC 9112, 7.1)."""


def exchange(connect: Connect, request: RawRequest) -> Answer:
    """Send a raw HTTP request on a new connection and return the answer.

    A failure raises no error: its description is in `Answer.error`. If the request has no head, only the connection
    and its TLS handshake are made.

    Args:
        connect: The function that opens the connection; its argument is True for the port with TLS.
        request: The bytes to send, and how to send them.

    """
    tls: dict[str, str] = {}
    try:
        with connect(request.tls) as raw:
            raw.settimeout(TIMEOUT_S)
            sock = _wrap(raw, request, tls) if request.tls else raw
            return replace(_talk(sock, request), tls=tls) if request.head else Answer(tls=tls)
    except TimeoutError:
        return Answer(tls=tls, error=f"{NO_ANSWER} in {TIMEOUT_S:g} s")
    except ssl.SSLError as error:
        return Answer(tls=tls, error=f"TLS: {(error.reason or 'handshake failed').lower().replace('_', ' ')}")
    except (EOFError, OSError):
        return Answer(tls=tls, error="the connection ended without an answer")
    except _ChunkError:
        return Answer(tls=tls, error="a chunk of the body without a size")


def _wrap(raw: socket.socket, request: RawRequest, tls: dict[str, str]) -> ssl.SSLSocket:
    """Make a TLS handshake over a connection as the request prescribes, and return the TLS socket.

    Args:
        raw: The connection.
        request: The request, with its TLS version, ALPN protocols and server name.
        tls: A mapping to which facts about the handshake are added: `version`, `cipher`, `protocol` and `certificate`.

    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(request.alpn))
    if request.tls_version:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion[request.tls_version.replace(".", "_")]
    sock = context.wrap_socket(raw, server_hostname=request.host if request.sni else None)
    der, cipher = sock.getpeercert(binary_form=True), sock.cipher()
    tls["version"], tls["cipher"] = sock.version() or "", cipher[0] if cipher else ""
    tls["protocol"] = sock.selected_alpn_protocol() or "none"
    tls["certificate"] = ", ".join(describe_certificate(der).values()) if der else ""
    return sock


def _talk(sock: socket.socket, request: RawRequest) -> Answer:
    stream, interim, head = _Stream(sock), list[int](), b""
    _send(sock, request.head + (b"" if request.waits else request.body))
    if request.waits:
        stream.deadline = time.monotonic() + CONTINUE_S
        with suppress(TimeoutError):  # no 100 Continue: the body is sent all the same, as RFC 9110 allows
            head = stream.until(_END)
        stream.deadline = time.monotonic() + TIMEOUT_S
        if not head or _read_status(head) < 200:
            _send(sock, request.body)
    head = head or stream.until(_END)
    while (status := _read_status(head)) < 200 and status != 101:
        interim.append(status)
        head = stream.until(_END)
    lines = head.decode("latin-1").split("\r\n")
    answer = Answer(status, lines[0].split(" ")[0], _split(lines[1:]), interim=tuple(interim))
    body, trailers, framing = _read_body(stream, request, answer)
    closes = framing == "close" or "close" in answer.header("connection").lower() or status == 101
    return replace(answer, body=body, trailers=trailers, framing=framing, kept=not closes and _is_kept(request, stream))


def _read_status(head: bytes) -> int:
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    if not parts[0].startswith(b"HTTP/") or len(parts) < 2 or not parts[1].isdigit():
        raise EOFError
    return int(parts[1])


def _split(lines: list[str]) -> Headers:
    return tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))


def _send(sock: socket.socket, data: bytes) -> None:
    """Send bytes, and ignore an error of the connection.

    A server may answer and close before it has read all bytes. Its answer is then read nevertheless.
    """
    with suppress(ConnectionError, ssl.SSLError):
        sock.sendall(data)


def _read_body(stream: _Stream, request: RawRequest, answer: Answer) -> tuple[bytes, Headers, str]:
    """Read the rest of an answer, and return its body, its trailers, and how the end of the body is marked.

    Returns:
        The body; the trailers (headers after a chunked body); and `chunked`, `length` (Content-Length), `close` (the
        connection ends) or `none` (no body).

    """
    if request.method == "HEAD" or answer.status in (101, 204, 304):
        return b"", (), "none"
    if "chunked" in answer.header("transfer-encoding").lower():
        body, trailers = b"", list[str]()
        while size := _read_size(stream):
            body += stream.exactly(size + 2)[:-2]
        while line := stream.until(b"\r\n"):
            trailers.append(line.decode("latin-1"))
        return body, _split(trailers), "chunked"
    if (length := answer.header("content-length")).isdigit():
        return stream.exactly(int(length)), (), "length"
    while stream.more():
        pass
    return stream.data, (), "close"


def _read_size(stream: _Stream) -> int:
    digits = stream.until(b"\r\n").split(b";")[0].strip()
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):
        raise _ChunkError
    return int(digits, 16)


def _is_kept(request: RawRequest, stream: _Stream) -> bool:
    """Send a second request on the connection, and return whether the server sends anything more.

    If it does, the server has kept the connection open.
    """
    stream.deadline = time.monotonic() + TIMEOUT_S
    head = f"GET / HTTP/1.1\r\nHost: {request.host}\r\n{KEPT_HEADER}: 1\r\nConnection: close\r\n\r\n"
    _send(stream.sock, head.encode("latin-1"))
    with suppress(TimeoutError):
        return bool(stream.data) or stream.more()
    return False
