"""A proxy's controller, as it is seen from outside: its configuration, and its reloads.

Reads what they write to their error output, which a kubelet would keep as the container's log:

    I1125 14:20:01.123456      7 controller.go:190] "Configuration changes detected, backend reload required"    →   Reload
"""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime
from pathlib import Path

from lab.model.events import EventLog
from lab.systems.manifests.pods import Pod
from lab.systems.system import Controller
from lab.targets.local.kubelet.containers import Process

LOOK_S = 0.02
MOST_READ = 1 << 20
"""Characters of its output: what a controller says of its settings comes first, an access log may follow."""
_STAMP = re.compile(r"^[IWEF](\d{4}) (\d\d:\d\d:\d\d\.\d{6}) ")


class Followed:
    """One controller's container. `left`: it was told to end; `fault`: why its log is not read."""

    def __init__(self, pod: Pod, process: Process, controller: Controller, log: EventLog) -> None:
        self.pod, self.process, self.controller, self._log = pod, process, controller, log
        self.left, self.fault = False, ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-{pod.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def lines(self) -> list[str]:
        said = ""
        for name in self.controller.says:
            file: Path = getattr(self.process, name)
            if file.exists():
                with file.open(errors="replace") as stream:
                    said += stream.read(MOST_READ if name == "stdout" else -1)
        return said.splitlines()

    def config_bytes(self) -> int:
        file = self.process.inside(self.controller.config) if self.controller.config else None
        return file.stat().st_size if file is not None and file.exists() else 0

    def load_s(self) -> float | None:
        """From the last Reload to the Reloaded after it; None where its log tells none."""
        began_s: float | None = None
        took_s: float | None = None
        for line in self.lines():
            event = self.controller.event_of(line)
            if event == "Reload":
                began_s = stamp(line)
            elif event == "Reloaded" and began_s is not None and (at_s := stamp(line)) is not None:
                took_s, began_s = at_s - began_s, None
        return took_s

    def _run(self) -> None:
        """The thread: every line once, its first configuration's load left out."""
        at, rest, starting, file = 0, "", True, self.process.stderr
        try:
            while not self._over.wait(LOOK_S):
                if not file.exists():
                    continue
                with file.open("rb") as stream:
                    size = stream.seek(0, 2)
                    stream.seek(at if size >= at else 0)  # it was cut
                    text = stream.read()
                    at = stream.tell()
                *whole, rest = (rest + text.decode(errors="replace")).split("\n")
                for line in whole:
                    kind = self.controller.event_of(line)
                    if kind is not None and not starting:
                        self._log.add("proxy", kind, self.pod.name, "", "proxy", stamp(line))
                    elif kind == "Reloaded":
                        starting = False
        except OSError as error:
            self.fault = str(error)


def stamp(line: str) -> float | None:
    """When a line of klog's was written, in seconds since 1970: UTC, as in a container, and it has no year."""
    if not (match := _STAMP.match(line)):
        return None
    year = datetime.now(UTC).year
    return datetime.strptime(f"{year}{match[1]} {match[2]} +0000", "%Y%m%d %H:%M:%S.%f %z").timestamp()
