"""k6 processes that run concurrently with a load, and long-lived connections that such a process keeps open.

A process of k6 (a load generator) runs a script of this folder on the client's side. The lab reads only the log of the
process, and the caller interprets the log's lines. The process ends with the `with` block that started it.

The connections go through the proxy: WebSockets, and downloads at 20 kB/s. Each connection lasts for about a minute, is
closed and then opened anew. The first connections end at different times. So some connections always belong to the proxy's
newest processes, while old processes stay for as long as their connections last. A connection that is cut is recorded as an
event, but a regular close is not.
The WebSocket server is a script that runs in the backend's pod. The fixture `answers` has the routes to it and to the slow
pages. The load starts after all connections are open.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from pydantic import Field

from lab.base.errors import MeasuringError, UsageError
from lab.base.files import as_store_error, writing
from lab.disturbances._asked import replicas
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests
from lab.model.events import Event
from lab.model.pages import PAGES

HERE = Path(__file__).parent
_QUIET = ["--quiet", "--no-color", "--no-usage-report", "--address", "", "--log-format", "raw"]
FIXTURE = "answers"
PORT = 8088
"""The port of the WebSocket server, as in manifests/fixtures/answers."""
PAGE = "1MB.bin"
LIFE_S = PAGES[PAGE] / (20 * 1024)
"""The seconds that a download takes at the fixture's limit_rate (51 s); a WebSocket stays open equally long."""
OPENING_S = 60.0
LONGEST = "24h"
_LINE = re.compile(r"(websocket|download) (\d+) (\d+) (held|cut|refused) ?(.*)")


@dataclass(frozen=True, slots=True)
class K6Process:
    """A running process of the load generator k6, and its log.

    Attributes:
        script: The name of the k6 script, for error messages.
        process: The process.
        log: The file that the process logs to.
        ahead_s: The seconds by which the clock of the process's machine is ahead of the lab's clock.

    """

    script: str
    process: Popen[bytes]
    log: Path
    ahead_s: float

    def lines(self) -> list[str]:
        """Return the complete lines that the k6 process has logged so far."""
        text = self.log.read_bytes().decode("utf-8", "replace")
        return text[: text.rfind("\n") + 1].splitlines()

    def at_s(self, milliseconds: str) -> float:
        """Convert a time that k6 logged (ms since the epoch) to seconds since the epoch by the lab's clock."""
        return int(milliseconds) * 1e-3 - self.ahead_s

    def complain(self, fault: str) -> MeasuringError:
        """Return an error with a fault and the last line of the k6 process's log; the caller raises it."""
        last = next((line for line in reversed(self.lines()) if line.strip()), "it said nothing")
        return MeasuringError(f"k6 {self.script}", f"{fault}: {last[:200]}", "the proxy's log may say why")

    def need(self) -> None:
        """Check that the k6 process still runs.

        Raises:
            MeasuringError: The process has ended.

        """
        if (status := self.process.poll()) is not None:
            raise self.complain(f"ended with status {status}")


@contextmanager
def run_k6(context: DisturbanceContext, script: str, load: Mapping[str, Any]) -> Iterator[K6Process]:
    """Run a k6 script concurrently with the load, and kill the k6 process when the `with` block ends.

    Args:
        context: The context of the disruption.
        script: The file name of the script in this module's folder.
        load: The content of the file `load.json`, from which the script reads its settings.

    Yields:
        The k6 process.

    Raises:
        MeasuringError: k6 cannot be started.

    """
    folder = context.folder / script
    ahead_s = context.system.clock().offset_s
    with ExitStack() as stack:
        with writing(folder, "TMPDIR"):
            folder.mkdir()
            log = stack.enter_context((folder / "log").open("wb"))
            output = stack.enter_context((folder / "output").open("wb"))
        files = {"run.js": (HERE / script).read_text("utf-8"), "load.json": json.dumps(load), "k6.json": "{}\n"}
        argv = [context.find("k6"), "run", *_QUIET, "--config", "k6.json", "run.js"]
        try:
            with as_store_error(argv[0]):
                process = context.system.popen(argv, folder, output, log, files)
        except OSError as error:
            raise MeasuringError(f"k6 {script}", f"cannot be started: {error}", "`just doctor`") from None
        try:
            yield K6Process(script, process, folder / "log", ahead_s)
        finally:
            process.kill()
            process.wait()


def wait_for(context: DisturbanceContext, place: str, seconds: float) -> Iterator[None]:
    """Yield every tenth of a second, so that the caller can check a condition and leave its loop when it is met.

    Args:
        context: The context of the disruption.
        place: What the caller waits for, in words, for the error message.
        seconds: The seconds after which to give up.

    Raises:
        MeasuringError: The caller is still in the loop after `seconds`.
        LoadEndedError: The load has ended.

    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        context.wait(0.1)
    raise MeasuringError(place, f"not within {seconds:g} s", "the proxy's log may say why")


# -- long-lived connections ----------------------------------------------------------------------------


class HoldingDisturbance(Disturbance):
    """The base class of the disruptions that keep long-lived connections through the proxy open during the load."""

    websockets: int = Field(default=0, ge=0, le=1000, description="WebSockets held open meanwhile, through the proxy")
    downloads: int = Field(
        default=0, ge=0, le=1000, description="slow downloads held open meanwhile, through the proxy"
    )

    @property
    def fixtures(self) -> tuple[str, ...]:
        """The names of the fixtures (components of manifests/fixtures) that the disruption adds to the variant.

        Long-lived connections need the fixture `answers`. Without such connections the tuple is empty.
        """
        return (FIXTURE,) if self.websockets or self.downloads else ()

    @property
    def prepared(self) -> tuple[object, ...]:
        """A tuple that identifies what the disruption sets up before the load; it includes the numbers of long-lived connections.

        Load points (loads of a sweep) with equal tuples share their control runs, which are runs without the
        disruption.
        """
        return *super().prepared, self.websockets, self.downloads

    def vet(self, manifests: Manifests) -> None:
        """Refuse WebSockets for a variant with several backend pods, since the WebSocket server runs in only one of the pods."""
        if self.websockets and (count := replicas(manifests, "backend")) > 1:
            fault = f"the server of WebSockets is in one of {count} backend pods, and the proxy asks them all"
            remedy = "a sweep without them, or a variant with one backend pod"
            raise UsageError("disturbance.websockets", fault, remedy)

    def prepare(self, context: DisturbanceContext) -> None:
        """Open all long-lived connections before the load begins.

        Control runs (runs of the same load without the disruption) open these connections, too. So a connection that is
        cut in the runs with the disruption, but not in control runs, is an effect of the disruption.
        """
        if self.websockets or self.downloads:
            context.background.enter_context(hold_connections(context, self.websockets, self.downloads))


@contextmanager
def hold_connections(context: DisturbanceContext, websockets: int, downloads: int) -> Iterator[None]:
    """Keep WebSockets and slow downloads open through the proxy until the `with` block ends, then log what happened to them.

    The `with` block begins after all connections are open. At least one of the two numbers is above zero. With
    WebSockets, the system has one backend pod (`HoldingDisturbance.vet`).

    Args:
        context: The context of the disruption, whose event log gets an event for each connection that was opened, cut or
            refused.
        websockets: The number of WebSockets.
        downloads: The number of downloads.

    Raises:
        MeasuringError: Some connections cannot be opened, or their k6 process ended early.

    """
    entry, counts = context.system.entry(), {"websocket": websockets, "download": downloads}
    load: dict[str, object] = {
        "url": entry.base_url,
        "host": entry.host,
        "life_ms": round(LIFE_S * 1000),
        "websockets": websockets,
        "downloads": downloads,
        "page": PAGE,
        "page_bytes": PAGES[PAGE],
        "scenarios": {
            name: {"executor": "constant-vus", "vus": count, "duration": LONGEST, "gracefulStop": "0s", "exec": name}
            for name, count in counts.items()
            if count
        },
    }
    server = _run_server(context) if websockets else nullcontext()
    with server, run_k6(context, "_long_lived.js", load) as holder:
        _await_open(context, holder, counts)
        try:
            yield
        finally:
            context.log.events.extend(read_events(holder, time.time()))
            holder.need()


def read_events(holder: K6Process, until_s: float) -> Sequence[Event]:
    """Return the events Held (opened), Cut and Refused of the long-lived connections, read from the k6 process's log.

    The log may have both a line `held` and a line `refused` for one connection. Then only the event Refused is returned.

    Args:
        holder: The k6 process that keeps the connections open.
        until_s: The time on the lab's clock, in seconds since the epoch, when the k6 process began to end. Lines after that
            time are left out, because the end of the process cuts all connections.

    """
    matches = [line for line in map(_LINE.fullmatch, holder.lines()) if line and holder.at_s(line[3]) < until_s]
    refused = {line.group(1, 2) for line in matches if line[4] == "refused"}
    kinds = {"held": "Held", "cut": "Cut", "refused": "Refused"}
    return [
        Event(holder.at_s(line[3]), "lab", "", f"{line[1]}-{line[2]}", kinds[line[4]], f"{line[1]} {line[5]}".strip())
        for line in matches
        if not (line[4] == "held" and line.group(1, 2) in refused)
    ]


@contextmanager
def _run_server(context: DisturbanceContext) -> Iterator[None]:
    """Run a WebSocket server in the backend's pod until the `with` block ends.

    The `with` block begins once the server runs. A running server answers an ordinary HTTP request with status 426. Before
    that, the backend's nginx answers 502.
    """
    script = (HERE / "_websocket_server.bash").read_text("utf-8")
    server = context.system.spawn("backend", ["bash", "-c", script, "websockets", str(PORT)])
    try:
        for _ in wait_for(context, "WebSocket server", OPENING_S):
            if (status := server.poll()) is not None:
                fault = f"ended with status {status} in the backend's place"
                raise MeasuringError("WebSocket server", fault, "it needs bash and socat there")
            with suppress(OSError):
                if context.system.fetch(context.system.backend_endpoint(), "/socket", 5).status == 426:
                    break
        yield
    finally:
        server.kill()
        server.wait()


def _await_open(context: DisturbanceContext, holder: K6Process, counts: dict[str, int]) -> None:
    for _ in wait_for(context, "long-lived connections", OPENING_S):
        holder.need()
        matches = [line for line in map(_LINE.fullmatch, holder.lines()) if line]
        if refused := next((line for line in matches if line[4] != "held"), None):
            raise MeasuringError(f"{refused[1]}s", f"cannot be held: {refused[5]}", "the proxy's log may say why")
        open_counts = {kind: len({line[2] for line in matches if line[1] == kind}) for kind in counts}
        if all(open_counts[kind] >= count for kind, count in counts.items()):
            return
