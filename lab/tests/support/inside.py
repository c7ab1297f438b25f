"""Tests inside the local target's namespaces: a file that runs itself again there, as this user and as one without privileges."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.base.errors import MeasuringError
from lab.model.variants.variants import Variant, load_variant
from lab.targets.common.sampler import HOST_PROC, OUTER_PID
from lab.targets.local.sandbox.namespaces import make_unshare_command, prepare
from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget
from lab.tests.support.factories import make_point

ROOT = Path(__file__).parents[3]
INSIDE = "LAB_TEST_INSIDE" in os.environ
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
IDENTITIES = [pytest.param("this user", marks=[pytest.mark.long] * (os.geteuid() == 0)), "nobody"]
"""Root's own turn is long: a user without privileges has the narrower way, and the benches of other tests are root's where they run as root."""
inside = pytest.mark.skipif(not INSIDE, reason="runs inside the namespaces: see test_inside")


def run_inside(file: str, identity: str, selected: tuple[str, ...] = ()) -> None:
    """Every test of the file (or those that pytest's arguments `selected` choose), in the namespaces that `enter` would make; fails with what they print."""
    if identity == "nobody" and os.geteuid() != 0:
        pytest.skip("this user is already one without privileges")
    who = NOBODY if identity == "nobody" else []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "LAB_TEST_INSIDE": "1", "HOME": name, "TMPDIR": name}
        reads = [*who, sys.executable, "-c", "import lab.targets"]
        if subprocess.run(reads, cwd="/", env=env, check=False, capture_output=True).returncode:
            pytest.skip(f"nobody may not read {ROOT} or {sys.executable}")
        host_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        env |= {HOST_PROC: str(host_proc), OUTER_PID: str(os.getpid())}
        pytest_argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={name}/inner", file]
        argv = [*who, *make_unshare_command(as_root=not who and os.geteuid() == 0), *pytest_argv, *selected]
        try:
            done = subprocess.run(
                argv, cwd=ROOT, env=env, pass_fds=[host_proc], capture_output=True, text=True, timeout=1200, check=False
            )
        finally:
            os.close(host_proc)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.fixture(scope="session")
def target() -> LocalTarget:
    prepare()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    local = LocalTarget()
    local.check()
    return local


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test inside leaves nothing: no process, nor a thread that could start one, no interface, no namespace, no folder."""
    if not INSIDE:
        yield
        return
    request.getfixturevalue("target")
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith(("run-", "probe"))]
    assert left == [], left
    left = [str(process) for process in psutil.process_iter() if process.pid != os.getpid()]
    assert left == [], left
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in links] == ["lo"], links
    left = [str(path) for folder in ("/run/netns", "/run/lab/pods") for path in Path(folder).iterdir()]
    assert left == [], left


def changed(
    name: str, edit: Callable[[dict[str, Any]], object], kind: str = "Deployment", of: str = "proxy"
) -> Variant:
    """A variant with one of its objects edited."""
    return edited(load_variant(name), edit, kind, of)


def edited(
    variant: Variant, edit: Callable[[dict[str, Any]], object], kind: str = "Deployment", of: str = "proxy"
) -> Variant:
    manifests = copy.deepcopy(variant.manifests)
    (found,) = [item for item in manifests if item["kind"] == kind and item["metadata"]["name"] == of]
    edit(found)
    return variant.model_copy(update={"manifests": manifests})


def balanced(policy: str, replicas: int = 1, host_network: bool = False) -> Variant:
    """`baseline` with its proxy's pods behind a Service of type LoadBalancer."""

    def pods(item: dict[str, Any]) -> None:
        item["spec"]["replicas"] = replicas
        pod_of(item)["hostNetwork"] = host_network

    variant = changed(
        "baseline", lambda item: item["spec"].update(type="LoadBalancer", externalTrafficPolicy=policy), "Service"
    )
    return edited(variant, pods)


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    return deployment["spec"]["template"]["spec"]


def answers(system: LocalSystem) -> bool:
    try:
        return system.fetch(system.endpoint(make_point()), "/1kB.bin", 2.0).status == 200
    except OSError:
        return False


def faulty(check: Callable[[], object]) -> bool:
    try:
        check()
    except MeasuringError:
        return True
    return False


EVERY_S = 0.02


class Client:
    """A request every `EVERY_S`, whatever becomes of the others, on a connection of its own."""

    def __init__(self, system: LocalSystem) -> None:
        self._system, self._entry = system, system.entry()
        self.rows: list[tuple[float, float, int, str]] = []
        """(sent, done, status or 0, what answered)"""
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        while not self._over.wait(EVERY_S):
            thread = threading.Thread(target=self._ask, daemon=True)
            thread.start()
            self._threads.append(thread)
        for thread in self._threads:
            thread.join()

    def end(self) -> None:
        """`run` returns when everything it began to ask is answered, the last too, which it may have begun meanwhile."""
        self._over.set()

    @property
    def failed(self) -> list[str]:
        return [f"{status} {what}" for _, _, status, what in self.rows if status != 200]

    @property
    def gap_s(self) -> float:
        done = sorted(done for _, done, status, _ in self.rows if status == 200)
        return max(after - before for before, after in pairwise(done))

    def _ask(self) -> None:
        sent = time.time()
        try:
            answer = self._system.fetch(self._entry, "/1kB.bin", 10.0)
            self.rows.append((sent, time.time(), answer.status, answer.headers.get("x-lab-backend", "")))
        except OSError as error:
            self.rows.append((sent, time.time(), 0, str(error)))


@contextmanager
def asked(system: LocalSystem) -> Iterator[Client]:
    client = Client(system)
    thread = threading.Thread(target=client.run, daemon=True)
    thread.start()
    try:
        time.sleep(0.3)
        yield client
        time.sleep(0.3)
    finally:
        client.end()
        thread.join()
