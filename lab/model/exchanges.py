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
    """An HTTP request as the bytes that a client sends, and the settings of its connection.

    Attributes:
        case: The name of what the request tests, such as `dot-segments`. Requests with equal names test one thing.
        about: What the request tests, in words.
        host: The host that the client means; it is also the server name of the TLS handshake.
        head: The request line and the headers, each with its line end, and the empty line.
        body: The bytes after the head.
        tls: Whether the request goes to the port with TLS.
        sni: Whether the TLS handshake names the host.
        tls_version: The only version of TLS that the client accepts, such as `TLSv1.1`; empty for the client's
            defaults.
        alpn: The protocols that the TLS handshake offers.
        waits: Whether the client holds the body back until `100 Continue` arrives, for at most a second.
        keys: The proxy's settings and annotations (written with a leading @) that the request tests.

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
        """A number that is smaller for simpler requests: the bytes of head and body, plus 10 if the request uses TLS.

        A difference that several requests show is reported by one of the simplest.
        """
        return len(self.head) + len(self.body) + 10 * self.tls

    @property
    def method(self) -> str:
        """The method in the request line of this request, such as `GET`."""
        return self.head.split(b" ", 1)[0].decode("latin-1")

    @property
    def target(self) -> str:
        """The target in the request line: a path with its query, or an absolute URI; empty if the line has none."""
        line = self.head.split(b"\r\n", 1)[0].split(b" ")
        return line[1].decode("latin-1") if len(line) > 1 else ""

    @property
    def headers(self) -> Headers:
        """The headers in the bytes of this request, as (name, value) pairs in their order."""
        lines = (line.decode("latin-1").partition(":") for line in self.head.split(b"\r\n")[1:] if line)
        return tuple((name, value.strip()) for name, _, value in lines)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer as a client received it.

    Attributes:
        status: The status code; 0 = no answer.
        version: The HTTP version in the status line.
        headers: The headers of the final answer.
        body: The body, with its transfer coding removed.
        trailers: The trailers after a chunked body.
        framing: What marks the end of the body: `length`, `chunked`, `close` or `none`.
        interim: The status codes of the interim (1xx) answers that came first.
        kept: Whether the connection stayed open, so that a second request on it was answered.
        tls: The version, cipher, protocol (ALPN) and certificate of the connection, by name; empty without TLS.
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
        """Return the values of a header, joined by `, `; empty if the answer has no such header.

        Args:
            name: The name of the header in lower case.

        """
        return ", ".join(value for key, value in self.headers if key.lower() == name)


@dataclass(frozen=True, slots=True)
class Received:
    """An HTTP request as a backend received it.

    Attributes:
        service: The Service whose backend received it, as `name:port`.
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
    """A request, the answer that the client got to it, and the requests that backends received in the meantime."""

    request: RawRequest
    answer: Answer
    received: tuple[Received, ...] = ()
