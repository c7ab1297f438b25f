"""A small HTTP server on every loopback address that remembers what it was asked."""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Seen:
    """Requests by Host header, connections by the address they came to, what was accepted as encoding."""

    hosts: Counter[str] = field(default_factory=Counter[str])
    places: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    encodings: set[str | None] = field(default_factory=set[str | None])
    forwarded: set[str | None] = field(default_factory=set[str | None])


@contextmanager
def answering(certificate: Path | None = None) -> Iterator[tuple[int, Seen]]:
    """(its port, what it has seen); it answers so late, with TLS where it is given a folder with cert.pem and key.pem."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            place = self.request.getsockname()[0]
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
                self.request = context.wrap_socket(self.request, server_side=True)
            seen.places.setdefault(place, set()).add(self.client_address[1])
            super().setup()

        def do_GET(self) -> None:
            seen.hosts[self.headers["Host"]] += 1
            seen.encodings.add(self.headers["Accept-Encoding"])
            seen.forwarded.add(self.headers["X-Forwarded-For"])
            # It says that it closes, as real servers do: wrk goes by the response and counts a read error otherwise.
            self.close_connection = self.headers.get("Connection", "").lower() == "close"
            closing = b"Connection: close\r\n" if self.close_connection else b""
            # One write: two would meet delayed acknowledgements, 40 ms that are not ours.
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + closing + b"\r\n" + bytes(9))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name for it)
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:  # a client that went at its end
            pass

    running = Quiet(("0.0.0.0", 0), Handler)  # every 127.x must do
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield running.server_address[1], seen
    finally:
        running.shutdown()
        running.server_close()
        thread.join(5)


@contextmanager
def telling(page: bytes) -> Iterator[tuple[int, list[str]]]:
    """(a port of the loopback whose every page is this one, the paths it was asked for): of HTTP/1.1 alone, as Envoy's."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            new = self.request_version == "HTTP/1.1"
            self.send_response(200 if new else 426)
            self.end_headers()
            self.wfile.write(page if new else b"Upgrade Required\n")

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield running.server_address[1], asked
    finally:
        running.shutdown()
        running.server_close()
