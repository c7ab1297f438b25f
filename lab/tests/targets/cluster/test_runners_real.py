"""Real k6 processes in the place of pods: what runners do is what `lab.targets.cluster.runners` takes them to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from lab.generators import generator
from lab.model.load import Load
from lab.targets.cluster.container_sampler import Place
from lab.targets.cluster.runners import Runners
from lab.targets.cluster.shell import Shell
from lab.targets.cluster.testrun import CONTAINER, KIND
from lab.tests.support.cluster_fakes import FakeApi, Object

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("k6") is None, reason="k6 is not installed"),
]
K6 = generator("k6")


@pytest.fixture
def counted() -> Iterator[tuple[str, list[int]]]:
    """A server's URL and its own count, which no generator has a part in."""
    seen: list[int] = []

    class Counting(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            seen.append(1)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the base's name

    with ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", seen
        server.shutdown()


class Here(FakeApi):
    """A pod is a process of this machine, at a loopback address of its own; its ConfigMap is a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.running = folder, dict[str, subprocess.Popen[bytes]]()

    def resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        return None if kind == KIND else ("pods", True)

    def create(self, obj: Mapping[str, Any]) -> Object:
        made = super().create(obj)
        if obj["kind"] == "ConfigMap":
            for name, text in obj["data"].items():
                (self.folder / name).write_text(text)
        else:
            self._run(made)
        return made

    def _run(self, pod: Object) -> None:
        name, (container,) = pod["metadata"]["name"], pod["spec"]["containers"]
        address = f"127.66.0.{len(self.running) + 1}"
        argv = [part.replace("/test/", f"{self.folder}/").replace("0.0.0.0", address) for part in container["command"]]
        env = {**os.environ, **{each["name"]: each["value"] for each in container["env"]}}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(argv, cwd=self.folder, env=env, stdout=log, stderr=log)
        self.put({**pod, "status": {"phase": "Running", "podIP": address}})

    def list(self, api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        found = super().list(api_version, kind, namespace, labels)
        for pod in found if kind == "Pod" else ():
            ended = self.running[pod["metadata"]["name"]].poll()
            state = {"running": {}} if ended is None else {"terminated": {"exitCode": ended}}
            pod["status"]["containerStatuses"] = [{"name": CONTAINER, "state": state}]
        return found

    def log(
        self, namespace: str, pod: str, container: str, lines: int, previous: bool = False, times: bool = False
    ) -> str:
        return (self.folder / f"{pod}.log").read_text()

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)


class Inside:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def script(self, text: str) -> None:
        assert text == "kill -TERM 1", "its own PID 1, as in a container"
        self._process.send_signal(signal.SIGTERM)

    def close(self) -> None: ...


class Looking:
    """How much had been counted, and who had ended, when a watch began anew and at the last look."""

    def __init__(self, counted: list[int], here: Here) -> None:
        self._counted, self._here = counted, here
        self.seen: list[tuple[int, list[int | None]]] = []
        self.at_s: list[float] = []

    @contextmanager
    def beginning_anew(self, places: Sequence[Place]) -> Iterator[None]:
        self._look()
        yield
        self._look()

    def _look(self) -> None:
        self.at_s.append(time.monotonic())
        self.seen.append((len(self._counted), [process.poll() for process in self._here.running.values()]))


def share(load: Load, counted: list[int], folder: Path) -> tuple[Any, Looking]:
    here: Any = Here(folder)
    watch: Any = Looking(counted, here)
    runners = Runners(here, here, lambda api, namespace, pod, container: cast("Shell", Inside(here.running[pod])))
    try:
        ran = runners.generate("image", "r1", load, K6.files(load), {}, watch)
    finally:
        for process in here.running.values():
            process.kill()
            process.wait()
    return ran, watch


@pytest.mark.parametrize(("generators", "rate_rps"), [(2, 100.0), (3, 201.0), (2, None)])
def test_what_many_made_together_is_what_the_server_counted(
    generators: int, rate_rps: float | None, counted: tuple[str, list[int]], tmp_path: Path
) -> None:
    """None begins before the first look, all are still there at the last, and only then do they print."""
    url, seen = counted
    load = Load(url, "web.lab.test", 6, 1.0, rate_rps=rate_rps, generators=generators)
    ran, watch = share(load, seen, tmp_path)
    assert (ran.exit_status, ran.hung, ran.stderr) == (0, False, ""), ran
    waiting = [None] * generators
    assert watch.seen == [(0, waiting), (len(seen), waiting)]
    result = K6.parse(ran.stdout, ran.stderr, ran.exit_status, load)
    assert result.requests == len(seen) == result.latency.total == sum(part.requests for part in result.parts)
    assert not result.errors
    if rate_rps is not None:
        # A busy machine makes some of them late, and then not at all: nobody makes another's part.
        assert max(part.requests + part.dropped for part in result.parts) <= rate_rps / generators + 1
    assert result.duration_s <= watch.at_s[1] - watch.at_s[0], "lingering is none of their time"


def test_one_whose_script_fails_fails_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load("http://127.0.0.1:1/", "web.lab.test", 2, 1.0, generators=2)
    monkeypatch.setattr(type(K6), "files", lambda self, load: {"k6.js": "no script", "k6.json": "{}"})  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    ran, watch = share(load, [], tmp_path)
    assert ran.exit_status > 0 and not ran.hung and watch.seen == []
    assert "Unexpected identifier" in ran.stdout
