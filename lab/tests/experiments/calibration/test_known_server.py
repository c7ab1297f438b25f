"""The server with known behaviour does what it is told, and its record is what a client saw."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil

from lab.experiments.calibration.known_server import ANSWER, SECOND, Behaviour, Planner
from lab.experiments.calibration.measuring import ServerRecord, read
from lab.model.facts import ROOT
from lab.tests.support.waiting import until

BEGIN = 1_000 * SECOND
REQUEST = b"GET /1kB.bin HTTP/1.1\r\nHost: h\r\n\r\n"


def plans(behaviour: Behaviour, arrivals_s: list[float]) -> list[float]:
    """When answers to requests that arrive at these moments are to be written; seconds after the first arrival."""
    planner = Planner(behaviour)
    return [(planner.planned_ns(BEGIN + round(at * SECOND)) - BEGIN) / SECOND for at in arrivals_s]


def test_exactly_one_of_every_twenty_is_slow_and_not_every_twentieth() -> None:
    """A fixed place would lock into the turns of a closed loop's connections."""
    found = plans(Behaviour(delay_s=0.001, slow_s=0.1, slow_every=20), [0.0] * 400)
    slow = [place for place, at in enumerate(found) if at == 0.1]
    assert [place // 20 for place in slow] == list(range(20))
    assert len({place % 20 for place in slow}) > 5
    assert {at for at in found if at != 0.1} == {0.001}


def test_what_falls_into_the_pause_waits_for_its_end() -> None:
    how = Behaviour(delay_s=0.01, pause_s=1.0, pause_at_s=5.0)
    assert plans(how, [0, 4.98, 4.995, 5.5, 5.985, 5.995, 7]) == [0.01, 4.99, 6, 6, 6, 6.005, 7.01]


@contextmanager
def served(folder: Path, behaviour: Behaviour) -> Iterator[tuple[int, list[ServerRecord]]]:
    """(port, where its record is once this has ended)."""
    argv = [sys.executable, "-S", "-m", "lab.experiments.calibration.known_server", str(folder / "r")]
    server = subprocess.Popen([*argv, json.dumps(asdict(behaviour))], env={"PYTHONPATH": str(ROOT)}, cwd="/")
    found: list[ServerRecord] = []
    try:
        until((folder / "r.ready").exists, "the server is not ready")
        yield int((folder / "r.ready").read_text()), found
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
        found.append(read((folder / "r").read_bytes()))
    finally:
        server.kill()
        server.wait()


def ask(client: socket.socket) -> bytes:
    client.sendall(REQUEST)
    return client.recv(len(ANSWER), socket.MSG_WAITALL)


def test_its_record_lies_within_what_a_client_measures(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with (
        served(tmp_path, Behaviour(delay_s=0.02)) as (port, found),
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        for _ in range(20):
            sent = time.time_ns()
            assert ask(client) == ANSWER
            seen.append((sent, time.time_ns()))
    (record,) = found
    assert len(record.rows) == 20 and record.connections == 1 and record.unstamped == 0
    for (sent, back), (_, arrived, planned, written) in zip(seen, record.rows.tolist(), strict=True):
        assert sent <= arrived < planned <= written <= back
        assert planned - arrived == 20_000_000
    assert record.service().total == 20


def test_requests_that_wait_for_the_server_itself_arrived_when_the_kernel_says(tmp_path: Path) -> None:
    with served(tmp_path, Behaviour()) as (port, found), socket.create_connection(("127.0.0.1", port)) as client:
        assert ask(client) == ANSWER
        (server,) = [each for each in psutil.Process().children() if "known_server" in " ".join(each.cmdline())]
        server.suspend()
        client.sendall(REQUEST)
        time.sleep(0.3)
        server.resume()
        assert client.recv(len(ANSWER), socket.MSG_WAITALL) == ANSWER
    service_s = [(row[3] - row[1]) / SECOND for row in found[0].rows.tolist()]
    assert 0.29 < service_s[1] < 5


def test_a_window_leaves_out_the_first_requests_and_keeps_the_counts(tmp_path: Path) -> None:
    with served(tmp_path, Behaviour()) as (port, found), socket.create_connection(("127.0.0.1", port)) as client:
        ask(client)
        time.sleep(0.3)
        ask(client)
    later = found[0].after(0.2)
    assert (len(later.rows), later.connections) == (1, 1)
    assert len(found[0].after(0).rows) == 2
