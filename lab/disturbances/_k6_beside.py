"""A k6 of its own beside the load, in the client's place: what it logs, line by line, is what is known of it.

Refuses to outlive its block, and to read from a script what its lines mean.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from lab.base.errors import MeasuringError
from lab.base.files import own_faults, writing
from lab.model.disturbance import DisturbanceContext

HERE = Path(__file__).parent
_QUIET = ["--quiet", "--no-color", "--no-usage-report", "--address", "", "--log-format", "raw"]


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
