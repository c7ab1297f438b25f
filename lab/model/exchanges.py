"""One request byte by byte, the answer that a client got to it, and what a backend received of it.

    Exchange(request=b"GET /a HTTP/1.1…", answer=Answer(status=200, …), received=(Received(service="shop:80", target="/a", …),))

Texts are latin-1 decoded bytes, so that nothing that was sent or received is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Headers = tuple[tuple[str, str], ...]
"""Names and values of headers as they came, in their order."""


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request as the bytes that a client sends, with everything about the connection that they are sent on.

    Attributes:
        case: The name of what the request tries, such as `dot-segments`; requests with equal names try the same.
        about: What the request tries, in words.
        host: The host that the client means, which is also the server name of its TLS handshake.
        head: The request line and the headers, each with its line end, and the empty line.
        body: The bytes after the head.
        tls: Whether the request goes to the port with TLS.
        sni: Whether the TLS handshake names the host.
        tls_version: The only version of TLS that the client speaks, such as `TLSv1.1`; empty for the client's defaults.
        alpn: The protocols that the TLS handshake offers.
        waits: Whether the client sends the body only after `100 Continue`, or after a second without one.
        keys: The settings and annotations (with @) that the request is about.

    """

    case: str
    about: str
    host: str
    head: bytes
    body: bytes = b""
    tls: bool = False
    sni: bool = True
    tls_version: str = ""
    alpn: tuple[str, ...] = ("http/1.1",)
    waits: bool = False
    keys: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of bytes by which one of several requests is the smallest."""
        return len(self.head) + len(self.body) + 10 * self.tls

    @property
    def method(self) -> str:
        """The method in the request line."""
        return self.head.split(b" ", 1)[0].decode("latin-1")

    @property
    def target(self) -> str:
        """The target in the request line: a path with its query, or an absolute URI."""
        line = self.head.split(b"\r\n", 1)[0].split(b" ")
        return line[1].decode("latin-1") if len(line) > 1 else ""

    @property
    def headers(self) -> Headers:
        """The headers of the request as they are sent."""
        lines = (line.decode("latin-1").partition(":") for line in self.head.split(b"\r\n")[1:] if line)
        return tuple((name, value.strip()) for name, _, value in lines)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as a client got it.

    Attributes:
        status: The status; 0 = no answer.
        version: The HTTP version of the status line.
        headers: The headers, without interim answers'.
        body: The body without its transfer coding.
        trailers: The trailers after a chunked body.
        framing: How the end of the body shows: `length`, `chunked`, `close` or `none`.
        interim: The status of each interim answer before.
        kept: Whether a second request on the connection was answered.
        tls: The version, cipher, protocol (ALPN) and certificate of the connection; empty without TLS.
        error: Why there is no answer, in words.

    """

    status: int = 0
    version: str = ""
    headers: Headers = ()
    body: bytes = b""
    trailers: Headers = ()
    framing: str = ""
    interim: tuple[int, ...] = ()
    kept: bool = False
    tls: Mapping[str, str] = field(default_factory=dict[str, str])
    error: str = ""

    def header(self, name: str) -> str:
        """Return the values of a header, joined by commas; empty if the answer has none of this name."""
        return ", ".join(value for key, value in self.headers if key.lower() == name)


@dataclass(frozen=True, slots=True)
class Received:
    """A request as a backend received it.

    Attributes:
        service: The Service that it was for, as `name:port`.
        method: The method.
        target: The path and query.
        version: The HTTP version.
        headers: The headers as they came.
        body: The size and a hash of the body, such as `12 bytes 5d41402a`.
        trailers: The trailers.
        client: The address that the connection came from.

    """

    service: str
    method: str
    target: str
    version: str
    headers: Headers
    body: str
    trailers: Headers
    client: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, the answer to it, and what backends received meanwhile."""

    request: RawRequest
    answer: Answer
    received: tuple[Received, ...] = ()
