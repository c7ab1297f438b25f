"""Connections that last, held through the proxy beside a load: WebSockets, and downloads at 20 kB/s.

Each lives for about a minute, is closed, and opened anew; they do not begin together. So there always are some that the
proxy's newest processes took, and old ones stay for as long as theirs last. What cuts one is an event, its closing is none.
The WebSocket server is a script in the backend's place; the fixture `answers` leads there, and to the slow pages.
Refuses to begin before all are open.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import Field

from lab.base.errors import MeasuringError, UsageError
from lab.disturbances._asked import replicas
from lab.disturbances._k6_beside import HERE, Beside, k6, wait_for
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests
from lab.model.events import Event
from lab.model.pages import PAGES

FIXTURE = "answers"
PORT = 8088
"""As in manifests/fixtures/answers."""
PAGE = "1MB.bin"
LIFE_S = PAGES[PAGE] / (20 * 1024)
"""How long a download takes by the fixture's limit_rate, and as long a WebSocket is held: 51 s."""
OPENING_S = 60.0
LONGEST = "24h"
_LINE = re.compile(r"(websocket|download) (\d+) (\d+) (held|cut|refused) ?(.*)")


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
