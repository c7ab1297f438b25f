"""The client against the recording backend: what is sent arrives byte by byte, and what is answered is read completely."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.analysis.verification.requests import make_catalogue, make_request
from lab.experiments.verification import echo
from lab.model.exchanges import Answer, RawRequest
from lab.systems.manifests import certificates
from lab.targets.common import wire

HOST = "bench.lab.test"
Talk = Callable[[RawRequest], tuple[Answer, list[dict[str, Any]]]]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    """Sends a request to the backend itself, and returns the answer and the records."""
    folder = tmp_path_factory.mktemp("echo")
    (folder / "echo.py").write_text(Path(echo.__file__).read_text())
    pair = certificates.issue(certificates.CertificateRequest((HOST,), certificates.DEFAULT_KEY))
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_text(pair[name])
    control, plain, secured = free_ports(3)
    process = subprocess.Popen([sys.executable, "-I", str(folder / "echo.py"), str(control), str(plain), f"{secured}s"])

    def take() -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{control}/take") as answer:
            return json.loads(answer.read())

    def send(request: RawRequest) -> tuple[Answer, list[dict[str, Any]]]:
        answer = wire.exchange(
            lambda tls: socket.create_connection(("127.0.0.1", secured if tls else plain), 5), request
        )
        return answer, [item for item in take() if not any(name == wire.KEPT_HEADER for name, _ in item["headers"])]

    deadline = time.monotonic() + 10
    while True:
        try:
            take()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    yield send
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    "case",
    ["plain", "slash-encoded", "dot-dot-encoded", "absolute-uri", "underscore", "method-lab", "utf8", "body-limit"],
)
def test_what_is_sent_is_what_is_received(talk: Talk, case: str) -> None:
    request = next(item for item in make_catalogue(4096) if item.case == case)
    answer, (record,) = talk(request)
    assert (answer.status, answer.framing, answer.kept) == (200, "length", True)
    assert (record["method"], record["target"]) == (request.method, request.target)
    assert tuple(map(tuple, record["headers"])) == request.headers
    assert record["body"].startswith(f"{len(request.body)} bytes" if request.body else "none")


@pytest.mark.parametrize("size", [b"", b"-1", b"0x3", b"lab"])
def test_a_chunk_without_a_size_is_described(size: bytes) -> None:
    """A broken proxy is a difference, and ends no verification."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = server.accept()
        with server, connection:
            connection.recv(1 << 16)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nlab\r\n0\r\n\r\n"
            )

    thread = threading.Thread(target=answer)
    thread.start()
    request = next(item for item in make_catalogue(4096) if item.case == "plain")
    answered = wire.exchange(lambda _tls: socket.create_connection(server.getsockname(), 5), request)
    thread.join()
    assert answered.error == "a chunk of the body without a size"


def test_a_chunked_body_and_its_trailers_are_received(talk: Talk) -> None:
    request = next(item for item in make_catalogue(4096) if item.case == "chunked-trailer")
    _, (record,) = talk(request)
    assert record["body"].startswith("3 bytes")
    assert record["trailers"] == [["X-Sum", "1"]]


@pytest.mark.parametrize(
    ("name", "status", "framing", "kept"),
    [
        ("redirect", 302, "length", True),
        ("trailers", 200, "chunked", True),
        ("chunked", 200, "chunked", True),
        ("close", 200, "close", False),
        ("204", 204, "none", True),
        ("404", 404, "length", True),
        ("503", 503, "length", True),
    ],
)
def test_every_answer_is_read_to_its_end(talk: Talk, name: str, status: int, framing: str, kept: bool) -> None:
    answer, _ = talk(make_request("", "", HOST, f"/a?lab={name}"))
    assert (answer.status, answer.framing, answer.kept) == (status, framing, kept)
    assert answer.trailers == ((("X-Lab-Sum", "1"),) if name == "trailers" else ())
    assert answer.body == echo.ANSWERS[name][2]


def test_a_body_is_sent_after_100_continue_which_is_noted(talk: Talk) -> None:
    request = next(item for item in make_catalogue(4096) if item.case == "expect")
    answer, (record,) = talk(request)
    assert (answer.interim, answer.status, record["body"][:7]) == ((100,), 200, "3 bytes")


def test_a_head_has_no_body_and_a_switch_of_protocols_ends_http(talk: Talk) -> None:
    cases = {item.case: item for item in make_catalogue(4096)}
    assert talk(cases["method-head"])[0].framing == "none"
    switched = talk(cases["upgrade"])[0]
    assert (switched.status, switched.kept) == (101, False)
    assert switched.header("sec-websocket-accept") == "8T1pUW3yj1zh8443ATxAE5XM0Qw="


def test_a_handshake_is_described_and_a_refused_one_has_its_reason(talk: Talk) -> None:
    answer, _ = talk(make_request("", "", HOST, "/a", tls=True))
    assert answer.tls["version"] == "TLSv1.3"
    assert answer.tls["certificate"] == f"RSA 2048, {HOST}"
    refused, records = talk(make_request("", "", HOST, "/a", tls=True, tls_version="TLSv1"))
    assert refused.status == 0
    assert refused.error.startswith("TLS: ")
    assert not records


def test_an_authentication_service_wants_credentials(talk: Talk) -> None:
    assert talk(make_request("", "", HOST, "/lab-auth"))[0].status == 401
    assert talk(make_request("", "", HOST, "/lab-auth", headers={"Authorization": "Basic x"}))[0].status == 200


def test_a_server_that_says_nothing_is_an_answer_without_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        request = make_request("", "", HOST, "/a")
        answer = wire.exchange(lambda _: socket.create_connection(server.getsockname(), 5), request)
    assert (answer.status, answer.error) == (0, "no answer in 0.2 s")
    closed = wire.exchange(lambda _: socket.create_connection(server.getsockname(), 5), request)
    assert closed.error == "the connection ended without an answer"
