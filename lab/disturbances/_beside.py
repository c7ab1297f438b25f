"""What runs beside a load in the client's place: a k6 of its own, and connections that it holds through the proxy, WebSockets and downloads at 20 kB/s.

What such a k6 logs, line by line, is what is known of it. Refuses to outlive its block, and to read from a script what its lines mean.

A held connection lives for about a minute, is closed, and opened anew; they do not begin together. So there always are some that the
proxy's newest processes took, and old ones stay for as long as theirs last. What cuts one is an event, its closing is none.
The WebSocket server is a script in the backend's place; the fixture `answers` leads there, and to the slow pages.
Refuses to begin before all are open.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from pydantic import Field

from lab.base.errors import MeasuringError, UsageError
from lab.base.files import own_faults, writing
from lab.disturbances._asked import replicas
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests
from lab.model.events import Event
from lab.model.pages import PAGES

HERE = Path(__file__).parent
_QUIET = ["--quiet", "--no-color", "--no-usage-report", "--address", "", "--log-format", "raw"]
FIXTURE = "answers"
PORT = 8088
"""As in manifests/fixtures/answers."""
PAGE = "1MB.bin"
LIFE_S = PAGES[PAGE] / (20 * 1024)
"""How long a download takes by the fixture's limit_rate, and as long a WebSocket is held: 51 s."""
OPENING_S = 60.0
LONGEST = "24h"
_LINE = re.compile(r"(websocket|download) (\d+) (\d+) (held|cut|refused) ?(.*)")


@dataclass(frozen=True, slots=True)
class Beside:
    """`script`: for messages. `ahead_s`: what its clock is ahead of the lab's."""

    script: str
    process: Popen[bytes]
    log: Path
    ahead_s: float

    def lines(self) -> list[str]:
        """Whole ones, so far."""
        text = self.log.read_bytes().decode("utf-8", "replace")
        return text[: text.rfind("\n") + 1].splitlines()

    def at_s(self, milliseconds: str) -> float:
        """A time of its own clock (ms since the epoch) → one of the lab's."""
        return int(milliseconds) * 1e-3 - self.ahead_s

    def complain(self, fault: str) -> MeasuringError:
        """With the last that it said."""
        said = next((line for line in reversed(self.lines()) if line.strip()), "it said nothing")
        return MeasuringError(f"k6 {self.script}", f"{fault}: {said[:200]}", "the proxy's log may say why")

    def need(self) -> None:
        """MeasuringError when it has ended."""
        if (status := self.process.poll()) is not None:
            raise self.complain(f"ended with status {status}")


@contextmanager
def k6(context: DisturbanceContext, script: str, load: Mapping[str, Any]) -> Iterator[Beside]:
    """Run a script of this folder with its `load`. MeasuringError when it cannot be started."""
    folder = context.folder / script
    ahead_s = context.system.clock().offset_s
    with ExitStack() as opened:
        with writing(folder, "TMPDIR"):
            folder.mkdir()
            log = opened.enter_context((folder / "log").open("wb"))
            output = opened.enter_context((folder / "output").open("wb"))
        files = {"run.js": (HERE / script).read_text("utf-8"), "load.json": json.dumps(load), "k6.json": "{}\n"}
        argv = [context.find("k6"), "run", *_QUIET, "--config", "k6.json", "run.js"]
        try:
            with own_faults(argv[0]):
                process = context.system.popen(argv, folder, output, log, files)
        except OSError as error:
            raise MeasuringError(f"k6 {script}", f"cannot be started: {error}", "`just doctor`") from None
        try:
            yield Beside(script, process, folder / "log", ahead_s)
        finally:
            process.kill()
            process.wait()


def wait_for(context: DisturbanceContext, what: str, seconds: float) -> Iterator[None]:
    """Every tenth of a second until the caller breaks off. MeasuringError after so many; OverError at the load's end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        context.wait(0.1)
    raise MeasuringError(what, f"not within {seconds:g} s", "the proxy's log may say why")


# -- connections that last -----------------------------------------------------------------------------


class Holding(Disturbance):
    """What kinds have in common that hold long-lived connections meanwhile: the keys, and that they go on beside the load."""

    websockets: int = Field(default=0, ge=0, le=1000, description="WebSockets held open meanwhile, through the proxy")
    downloads: int = Field(
        default=0, ge=0, le=1000, description="slow downloads held open meanwhile, through the proxy"
    )

    @property
    def fixtures(self) -> tuple[str, ...]:
        return (FIXTURE,) if self.websockets or self.downloads else ()

    @property
    def prepared(self) -> tuple[object, ...]:
        return *super().prepared, self.websockets, self.downloads

    def vet(self, manifests: Manifests) -> None:
        if self.websockets and (count := replicas(manifests, "backend")) > 1:
            fault = f"the server of WebSockets is in one of {count} backend pods, and the proxy asks them all"
            remedy = "a sweep without them, or a variant with one backend pod"
            raise UsageError("disturbance.websockets", fault, remedy)

    def prepare(self, context: DisturbanceContext) -> None:
        """All are open before the load begins, in control runs too: what cuts them, and what they cost beside a change, is the change's."""
        context.beside.enter_context(held(context, self.websockets, self.downloads))


@contextmanager
def held(context: DisturbanceContext, websockets: int, downloads: int) -> Iterator[None]:
    """That many of each, all open, until the block ends; then what happened to them is in the log.

    MeasuringError when they cannot all be opened, or the one who held them ended.
    """
    if not websockets and not downloads:
        yield
        return
    if websockets and len(context.system.pods("backend")) != 1:
        fault = "there are several backend pods, and the server of WebSockets is in one of them"
        raise MeasuringError("websockets", fault, "leave them out, or take a variant with one backend pod")
    entry, wanted = context.system.entry(), {"websocket": websockets, "download": downloads}
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
            for name, count in wanted.items()
            if count
        },
    }
    with _server(context, websockets), k6(context, "_long_lived.js", load) as beside:
        _open(context, beside, wanted)
        try:
            yield
        finally:
            context.log.extend(events(beside, time.time()))
            beside.need()


def events(beside: Beside, until_s: float) -> Sequence[Event]:
    """Held, Cut and Refused from its log, less what its own end did to them. A refused download was not held."""
    found = [line for line in map(_LINE.fullmatch, beside.lines()) if line and beside.at_s(line[3]) < until_s]
    refused = {line.group(1, 2) for line in found if line[4] == "refused"}
    kinds = {"held": "Held", "cut": "Cut", "refused": "Refused"}
    return [
        Event(beside.at_s(line[3]), "lab", "", f"{line[1]}-{line[2]}", kinds[line[4]], f"{line[1]} {line[5]}".strip())
        for line in found
        if not (line[4] == "held" and line.group(1, 2) in refused)
    ]


@contextmanager
def _server(context: DisturbanceContext, websockets: int) -> Iterator[None]:
    """The WebSocket server, which answers a request that is no handshake with 426; the backend's nginx says 502 for as long as it does not run."""
    if not websockets:
        yield
        return
    script = (HERE / "_websocket_server.bash").read_text("utf-8")
    server = context.system.spawn("backend", ["bash", "-c", script, "websockets", str(PORT)])
    try:
        for _ in wait_for(context, "WebSocket server", OPENING_S):
            if (status := server.poll()) is not None:
                fault = f"ended with status {status} in the backend's place"
                raise MeasuringError("WebSocket server", fault, "it needs bash and socat there")
            try:
                if context.system.fetch(context.system.backend_endpoint(), "/socket", 5).status == 426:
                    break
            except OSError:
                continue
        yield
    finally:
        server.kill()
        server.wait()


def _open(context: DisturbanceContext, beside: Beside, wanted: dict[str, int]) -> None:
    for _ in wait_for(context, "long-lived connections", OPENING_S):
        beside.need()
        found = [line for line in map(_LINE.fullmatch, beside.lines()) if line]
        if refused := next((line for line in found if line[4] != "held"), None):
            raise MeasuringError(f"{refused[1]}s", f"cannot be held: {refused[5]}", "the proxy's log may say why")
        held = {kind: len({line[2] for line in found if line[1] == kind}) for kind in wanted}
        if all(held[kind] >= count for kind, count in wanted.items()):
            return
