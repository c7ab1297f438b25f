"""Probes as a kubelet does them: from the node, with their delays, periods, timeouts and thresholds.

`check` makes one attempt and says why it failed; `Prober` repeats it in a thread of its own and reports changes.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from lab.systems.manifests.pods import Probe

Enter = Callable[[Sequence[str]], list[str]]
Changed = Callable[[bool, str], None]


def check(probe: Probe, address: str, enter: Enter) -> str | None:
    """One attempt within the probe's timeout: None if it succeeded, else why not."""
    deadline = time.monotonic() + probe.timeout_s
    try:
        if probe.kind == "exec":
            done = subprocess.run(
                enter(probe.command),
                timeout=probe.timeout_s,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            return None if done.returncode == 0 else f"exited {done.returncode}"
        with socket.create_connection((address, probe.port), probe.timeout_s) as connection:
            return None if probe.kind == "tcpSocket" else _http(connection, probe, address, deadline)
    except (TimeoutError, subprocess.TimeoutExpired):
        return f"no answer within {probe.timeout_s} s"
    except OSError as error:
        return f"{error.strerror or error}"


def _http(connection: socket.socket, probe: Probe, address: str, deadline: float) -> str | None:
    headers = {
        "Host": f"{address}:{probe.port}",
        "User-Agent": "kube-probe/lab",
        "Connection": "close",
        **probe.headers,
    }
    lines = [f"GET {probe.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    connection.settimeout(max(0.001, deadline - time.monotonic()))
    with http.client.HTTPResponse(connection) as response:
        try:
            response.begin()
        except http.client.HTTPException:
            return "not an HTTP answer"
        return None if 200 <= response.status < 400 else f"status {response.status}"


class Prober:
    """Runs one probe of one container until stopped.

    `changed(ok, detail)` is called once a threshold is reached: True after successThreshold successes,
    False after failureThreshold failures, and again only when that changes. `tried(fault, seconds)` is
    called after each attempt, its fault None when it succeeded.
    """

    def __init__(
        self,
        probe: Probe,
        attempt: Callable[[], str | None],
        changed: Changed,
        tried: Callable[[str | None, float], None],
    ) -> None:
        self._probe, self._attempt, self._changed, self._tried = probe, attempt, changed, tried
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; an attempt under way is not waited for, and its outcome not reported."""
        self._stop.set()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait for an attempt under way. Not from `changed` or `tried`."""
        self._thread.join()

    def _run(self) -> None:
        probe, state = self._probe, None
        successes = failures = 0
        due = time.monotonic() + probe.initial_delay_s
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            begin = time.monotonic()
            fault = self._attempt()
            if self._stop.is_set():
                return
            self._tried(fault, time.monotonic() - begin)
            if fault is None:
                successes, failures = successes + 1, 0
                if successes >= probe.successes and state is not True:
                    state = True
                    self._changed(True, "")
            else:
                successes, failures = 0, failures + 1
                if failures >= probe.failures and state is not False:
                    state = False
                    self._changed(False, fault)
            due = max(due + probe.period_s, time.monotonic())
