"""What runs beside a load: long-lived connections and large bodies, against the real fixture in a real nginx on loopback."""

import http.client
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest

from lab.base.errors import MeasuringError
from lab.disturbances import _background
from lab.disturbances._background import K6Process, hold_connections
from lab.disturbances.transfer import Transfer
from lab.model.disturbance import DisturbanceContext
from lab.model.endpoint import Endpoint, Response, Role
from lab.model.events import Event, EventLog
from lab.model.usage import USAGE_SCHEMA
from lab.model.variants.kustomize import parse_objects, render
from lab.model.variants.variants import MANIFESTS
from lab.records import incidents as happenings
from lab.records.tables import events_frame
from lab.tests.support.fakes import FakeSystem
from lab.tests.support.waiting import until

PROXY = """
user root root;
daemon off; pid {run}/proxy.pid; error_log stderr crit;
events {{ worker_connections 1000; }}
http {{
  access_log off; client_body_temp_path {run}/b; proxy_temp_path {run}/p; fastcgi_temp_path {run}/f;
  uwsgi_temp_path {run}/u; scgi_temp_path {run}/s;
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 5m;
    location / {{
      proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;
      proxy_pass http://127.0.0.1:{backend};
    }}
  }}
}}
"""
pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("k6", "nginx", "socat", "kustomize")),
    reason="k6, nginx, socat or kustomize is not installed",
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@dataclass
class Loopback(FakeSystem):
    """`proxy`, `backend`: ports."""

    proxy: int = 0
    backend: int = 0
    nginx: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])
    started: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def entry(self) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{self.proxy}", "bench.lab.test")

    def backend_endpoint(self) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{self.backend}", "bench.lab.test")

    def fetch(self, endpoint: Endpoint, path: str, timeout_s: float, headers: Any = None) -> Response:
        port = int(endpoint.base_url.rpartition(":")[2])
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)) as connection:
            connection.request("GET", path, headers=dict(headers or {}))
            answer = connection.getresponse()
            got = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, answer.read(), got)

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        self.started.append(subprocess.Popen(argv, stderr=subprocess.DEVNULL))
        return self.started[-1]


def backend_files(folder: Path, ports: Mapping[str, str]) -> Path:
    """The backend's ConfigMap with the fixture, as a target lays it down; ports and folders are this test's own."""
    built = parse_objects(render([MANIFESTS / "base" / "backend"], [MANIFESTS / "fixtures" / "answers"]))
    data = next(obj["data"] for obj in built if obj["kind"] == "ConfigMap")
    for name in ("conf", "pages", "run", "tls"):
        (folder / name).mkdir()
    for name, text in data.items():
        path = folder / "conf" / name
        path.write_text(text.replace("/srv/", f"{folder}/"))
        for old, new in ports.items():
            path.write_text(path.read_text().replace(old, new))
    subprocess.run(["sh", folder / "conf" / "pages.sh", folder / "pages"], check=True)
    return folder / "conf" / "nginx.conf"


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    backend, proxy, sockets, first = free_port(), free_port(), free_port(), 30000
    folder = tmp_path_factory.mktemp("srv")
    ports = {"listen 8080": f"listen {backend}", "127.0.0.1:8080": f"127.0.0.1:{backend}"}
    ports |= {"9000-9999": f"{first}-{first + 19}", str(_background.PORT): str(sockets)}
    conf = backend_files(folder, ports)
    (folder / "proxy.conf").write_text(PROXY.format(run=folder / "run", port=proxy, backend=backend))
    system = Loopback(proxy=proxy, backend=backend)
    for name, path in (("backend", conf), ("proxy", folder / "proxy.conf")):
        argv = ["nginx", "-e", "stderr", "-c", str(path)] + (["-g", "daemon off;"] if name == "backend" else [])
        system.nginx[name] = subprocess.Popen(argv)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_background, "PORT", sockets)
        until(lambda: is_listening(backend) and is_listening(proxy), "nginx does not listen")
        yield system
    for process in system.nginx.values():
        process.terminate()
        process.wait(10)


@pytest.fixture
def context(running: Loopback, tmp_path: Path) -> Iterator[DisturbanceContext]:
    yield DisturbanceContext(running, EventLog(), [], tmp_path, lambda name: shutil.which(name) or name)
    assert all(helper.poll() is not None for helper in running.started)


def told(context: DisturbanceContext, kind: str) -> list[Event]:
    frame = events_frame(context.log.events)
    return [Event(**row) for row in frame.filter(frame["kind"] == kind).to_dicts()]


def test_answers_say_which_server_gave_them_and_under_which_prefix(running: Loopback) -> None:
    """Port and prefix are the number of a change; anything else that stands in the header is none."""
    for port, prefix, said in ((30000, None, "-"), (30017, "/17", "17"), (30019, "/x", "-")):
        headers = {"X-Forwarded-Prefix": prefix} if prefix else {}
        answer = running.fetch(Endpoint(f"http://127.0.0.1:{port}", ""), "/1kB.bin", 5, headers)
        assert answer.status == 200
        assert len(answer.body) == 1024
        assert answer.headers["x-lab-answer"].split()[1:] == [str(port), said]


def test_an_upload_is_answered_once_it_has_been_read(running: Loopback) -> None:
    with closing(socket.create_connection(("127.0.0.1", running.backend), timeout=5)) as connection:
        connection.sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\nConnection: close\r\n\r\n")
        connection.sendall(bytes(2_000_000))
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(5)
        connection.sendall(bytes(2_000_000))
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_connections_are_held_until_one_is_cut_which_is_told_with_its_time_and_opened_anew(
    context: DisturbanceContext, running: Loopback
) -> None:
    """The proxy's workers are replaced, and end at once: every connection is cut, and a second later there again."""
    with hold_connections(context, 5, 3):
        context.wait(1.0)
        at_s = time.time()
        master = str(running.nginx["proxy"].pid)
        found = subprocess.run(["pgrep", "-P", master], capture_output=True, text=True, check=True)
        subprocess.run(["kill", "-KILL", *found.stdout.split()], check=True)
        context.wait(2.5)
    opened = [event.object.split("-")[0] for event in told(context, "Held") if event.at_s < at_s]
    assert opened.count("websocket") >= 5 and opened.count("download") >= 3
    assert not told(context, "Refused")
    cut = told(context, "Cut")
    assert {event.detail.split()[0] for event in cut} == {"websocket", "download"}
    assert len(cut) == 8
    assert all(-0.1 < event.at_s - at_s < 2.0 for event in cut)
    assert sum(event.at_s > at_s + 0.9 for event in told(context, "Held")) >= 8


def test_connections_that_cannot_be_opened_are_no_disturbance(
    context: DisturbanceContext, running: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "proxy", free_port())
    with pytest.raises(MeasuringError, match=r"downloads: cannot be held: .*refused"), hold_connections(context, 0, 2):
        pass


@pytest.mark.slow
def test_who_holds_them_must_last(context: DisturbanceContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_background, "LONGEST", "2s")
    with pytest.raises(MeasuringError, match="ended with status 0"), hold_connections(context, 2, 0):
        context.wait(3)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "size_mb", "status"), [("download", 10, 200), ("upload", 1, 200), ("upload", 10, 413)])
def test_transfers_are_timed_and_a_body_that_is_too_large_is_refused(
    context: DisturbanceContext, way: Any, size_mb: Any, status: int
) -> None:
    """The proxy takes bodies of 5 MB. The answer to an upload comes when the body was read: hardly before all is over."""
    Transfer(way=way, size_mb=size_mb, parallel=2, for_s=1, ends_s=2).disturb(context)
    found = told(context, "Transfer")
    assert len(found) >= 4
    form = rf"{way} {size_mb * 1048576} bytes \d\.\d{{6}} s first \d\.\d{{6}} s status {status}"
    assert all(re.fullmatch(form, event.detail) for event in found)
    seen = happenings.list_transfers(events_frame(context.log.events))
    assert (seen["first_s"] <= seen["took_s"] + 1e-6).all()
    shares = seen["first_s"] / seen["took_s"]  # one that had to wait for a CPU after its first byte proves nothing
    assert (way, status) != ("upload", 200) or median(shares.to_list()) > 0.5


def test_a_transfer_that_was_broken_off_is_lost(tmp_path: Path) -> None:
    """Begun and never over: k6 is silent about what it interrupts."""
    process = subprocess.Popen(["true"])
    process.wait()
    (tmp_path / "log").write_text("begun 0 1000000\nbegun 1 1000500\ntransfer 0 1002000 2000.000 11.300 200 -\n")
    beside = K6Process("_transfer.js", process, tmp_path / "log", 0.0)
    over, lost = Transfer(way="upload", size_mb=1).events(beside, 1010.5)
    assert (over.object, over.at_s, over.detail) == (
        "0", 1002.0, "upload 1048576 bytes 2.000000 s first 0.011300 s status 200",
    )  # fmt: skip
    assert (lost.object, lost.at_s) == ("1", 1010.5)
    assert lost.detail.startswith("upload 1048576 bytes 10.000000 s first - status 0 broken off")
    found = happenings.compute_incidents(events_frame([over, lost]), pl.DataFrame(schema=USAGE_SCHEMA), 1000.0, 1000.0)
    assert (found["transfers"], found["transfers_lost"], found["too_large"]) == (1, 1, 0)
    (tmp_path / "log").write_text("begun zero\n")
    with pytest.raises(MeasuringError, match="said 'begun zero'"):
        Transfer(way="upload", size_mb=1).events(beside, 1010.5)
