"""One request over a connection that somebody else made."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lab.model.endpoint import Endpoint
from lab.systems.manifests import certificates
from lab.targets.common import fetching

ANSWER = b"HTTP/1.1 404 Not Found\r\nX-Lab-Backend: one\r\nContent-Length: 3\r\n\r\nno\n"
PLAIN = Endpoint("http://10.0.0.1:8080", "bench.lab.test")
ENCRYPTED = Endpoint("https://bench.lab.test", "bench.lab.test", tls="edge")


def connected(
    answer: bytes, wrap: Callable[[socket.socket], socket.socket] = lambda end: end
) -> tuple[socket.socket, list[bytes]]:
    """A connection to a server that gives this answer to whatever it is asked, and what it was asked."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.settimeout(5)
    asked: list[bytes] = []

    def serve() -> None:
        with wrap(theirs) as end:
            asked.append(end.recv(4096))
            end.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return ours, asked


def test_an_answer_is_told_as_it_came() -> None:
    connection, asked = connected(ANSWER)
    got = fetching.fetch(connection, PLAIN, "/1kB.bin", {"Accept-Encoding": "gzip"}, 5.0)
    assert (got.status, got.body, got.headers["x-lab-backend"], got.tls) == (404, b"no\n", "one", {})
    assert asked[0].startswith(b"GET /1kB.bin HTTP/1.1\r\n") and b"Host: bench.lab.test\r\n" in asked[0]
    assert b"Accept-Encoding: gzip\r\n" in asked[0] and b"Connection: close\r\n" in asked[0]
    assert connection.fileno() == -1
    places = {"http://10.0.0.1": ("10.0.0.1", 80), "https://a.b": ("a.b", 443), "http://a.b:81": ("a.b", 81)}
    assert {url: fetching.split_address(Endpoint(url, "h")) for url in places} == places


def test_tls_is_recorded_and_not_judged(tmp_path: Path) -> None:
    for version, cipher, curve, group in (
        (ssl.TLSVersion.TLSv1_3, "TLS_AES_256_GCM_SHA384", "prime256v1", "P-256"),
        (ssl.TLSVersion.TLSv1_3, "TLS_AES_256_GCM_SHA384", "secp521r1", "P-521"),
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", None, "X25519"),
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", "secp384r1", "P-384"),
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", "prime256v1", "P-256"),
    ):
        request = certificates.read_request(
            "here", {certificates.NAMES: "bench.lab.test", certificates.KEY: "ecdsa-256"}
        )
        assert request is not None
        issued = certificates.issue(request)
        (tmp_path / "crt").write_text(issued["tls.crt"])
        (tmp_path / "key").write_text(issued["tls.key"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
        context.maximum_version = version
        context.set_ciphers("ECDHE+AESGCM+AES128")
        if curve:
            context.set_ecdh_curve(curve)
        connection, _ = connected(ANSWER, partial(context.wrap_socket, server_side=True))
        got = fetching.fetch(connection, ENCRYPTED, "/", None, 5.0)
        spoken = {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]
        certificate = {"key": "ECDSA 256", "subject": "bench.lab.test"}
        assert (got.status, got.body) == (404, b"no\n")
        assert got.tls == {"version": spoken, "cipher": cipher, "group": group, **certificate}
    hello = bytes.fromhex("16030300310200002d0303") + bytes(32) + bytes.fromhex("00009c0000050023000000")
    assert fetching.find_key_exchange_group(hello, "AES128-GCM-SHA256") is None
    assert fetching.find_key_exchange_group(b"", "") is None


@pytest.mark.parametrize("endpoint", [PLAIN, ENCRYPTED])
@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nno"])
def test_what_is_no_answer_is_an_os_error(answer: bytes, endpoint: Endpoint) -> None:
    connection, _ = connected(answer)
    with pytest.raises(OSError, match=r"."):
        fetching.fetch(connection, endpoint, "/", None, 5.0)
    assert connection.fileno() == -1
