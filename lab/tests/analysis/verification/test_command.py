"""The commands send what the lab's client sends: each is run against a socket that keeps the bytes."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading

import pytest

from lab.analysis.verification.command import write_command
from lab.analysis.verification.requests import make_catalogue, make_request
from lab.model.exchanges import RawRequest

CURLED = [item for item in make_catalogue(2048) if "curl -i" in write_command(item) and not item.tls and not item.waits]
PRINTED = [item for item in make_catalogue(2048) if write_command(item).startswith("printf") and not item.tls]


def receive(command: str, size: int) -> bytes:
    """Run a command against a server on this machine, and return the first bytes that it sends there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        got = bytearray()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(5)
                while len(got) < size and (part := connection.recv(1 << 16)):
                    got.extend(part)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        here = command.replace('"::$ADDRESS:"', f'"::127.0.0.1:{port}"')
        subprocess.run(["bash", "-c", here], check=False, capture_output=True, timeout=20)
        thread.join()
    return bytes(got)


def in_one_order(data: bytes) -> tuple[bytes, list[bytes], bytes]:
    """The request line, the headers in one order (curl has its own), and the body."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    return first, sorted(header.replace(b": ", b":") for header in headers), body


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on this machine")
@pytest.mark.parametrize("request_", CURLED[::6], ids=lambda item: item.case)
def test_curl_sends_the_bytes_of_a_request(request_: RawRequest) -> None:
    sent = request_.head + request_.body
    assert in_one_order(receive(write_command(request_), len(sent))) == in_one_order(sent)


@pytest.mark.parametrize("request_", PRINTED, ids=lambda item: item.case)
def test_printf_prints_the_bytes_of_a_request(request_: RawRequest) -> None:
    command = write_command(request_).removesuffix(' | nc "$ADDRESS" 80')
    printed = subprocess.run(["bash", "-c", command], check=True, capture_output=True).stdout
    assert printed == request_.head + request_.body


def test_most_of_the_catalogue_can_be_sent_by_curl() -> None:
    assert len(CURLED) > 2 * len(PRINTED)


def test_a_command_of_a_long_request_is_short_enough_to_be_read() -> None:
    commands = {item.case: write_command(item) for item in make_catalogue(1 << 20)}
    assert len(commands["url-70000"]) < 250
    assert len(commands["header-70000"]) < 250
    assert commands["body-beyond-limit"].startswith("head -c 1048577 /dev/zero | curl ")


def test_a_request_without_a_server_name_goes_to_the_address() -> None:
    request = make_request("no-sni", "", "shop.example", "/a", tls=True, sni=False)
    assert write_command(request) == (
        "curl -i --path-as-is --http1.1 -k -H User-Agent: -H Accept: -H 'Host: shop.example' \"https://$ADDRESS/a\""
    )
