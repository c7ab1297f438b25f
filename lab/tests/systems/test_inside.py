"""Asking an interface on a container's loopback by whichever program its image has."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import which
from urllib.parse import unquote

import pytest

from lab.systems import inside
from lab.systems.envoy import system as envoy


@pytest.fixture
def served() -> Iterator[tuple[int, list[str]]]:
    """A port that answers HTTP/1.1 alone, as Envoy's does, and which paths it was asked for."""
    asked: list[str] = []

    class Stats(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.request_version == "HTTP/1.1" else 426)
            self.end_headers()
            self.wfile.write(
                b"server.concurrency: 2\n" if self.request_version == "HTTP/1.1" else b"Upgrade Required\n"
            )

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...

    server = HTTPServer((inside.HOST, 0), Stats)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("program", ["curl", "bash", "wget"])
def test_an_interface_is_asked_by_what_there_is(program: str, served: tuple[int, list[str]], tmp_path: Path) -> None:
    """A path keeps what a shell and curl would read otherwise."""
    if which(program) is None:
        pytest.skip(f"no {program} here")
    for name in (program, "cat"):
        (tmp_path / name).symlink_to(which(name) or "")
    port, asked = served
    done = subprocess.run(
        ["/bin/sh", "-c", inside.asked(port, envoy.COUNTS)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 0 and "server.concurrency: 2\n" in done.stdout
    assert list(map(unquote, asked)) == [unquote(envoy.COUNTS)]


def test_where_nothing_answers_it_fails_without_an_answer() -> None:
    done = subprocess.run(["sh", "-c", inside.asked(1, "/")], capture_output=True, text=True, check=False)
    assert done.returncode and not done.stdout
