"""Large bodies, up or down, in parallel, beside the load's small requests: as many as go in a time, each timed.

A body that the proxy refuses (413) or that breaks off is as much of an outcome as one that comes through.
"""

from __future__ import annotations

import re
import time
from typing import Literal

from pydantic import Field, model_validator

from lab.base.errors import MeasuringError
from lab.base.validation import refuse
from lab.disturbances._beside import FIXTURE, Beside, k6
from lab.model.disturbance import Disturbance, DisturbanceContext
from lab.model.events import Event
from lab.model.pages import PAGES

START_S = 5.0
"""k6 takes less to start and to end."""
UPLOADING_MB = 400
"""k6 holds about three times what it uploads at once (1.3 GB for 4 of 100 MB), and the backend once."""
_BEGAN = re.compile(r"begun (\d+) (\d+)")
_LINE = re.compile(r"transfer (\d+) (\d+) ([\d.]+) ([\d.]+|-) (\d+) (.+)")
UNENDED = "broken off: it did not end in its time"


class Transfer(Disturbance):
    loads_client = True

    kind: Literal["transfer"] = "transfer"
    way: Literal["upload", "download"] = Field(description="which way the bodies go")
    size_mb: Literal[1, 10, 100] = Field(default=10, description="how large each is")
    parallel: int = Field(default=2, ge=1, le=100, description="how many at once, each on a new connection")
    for_s: float = Field(default=10.0, ge=1, le=3600, description="how long new ones begin")
    ends_s: float = Field(default=10.0, ge=1, le=600, description="how long the last may take beyond that")

    @model_validator(mode="after")
    def _fits(self) -> Transfer:
        most = UPLOADING_MB // self.size_mb
        said = f"disturbance.parallel: {most} uploads of {self.size_mb} MB at most, for want of memory"
        refuse((self.way == "upload" and self.parallel > most, said))
        return self

    @property
    def lasts_s(self) -> float:
        return self.for_s + self.ends_s + START_S

    @property
    def acts_s(self) -> float:
        return self.for_s  # its End is when the last is over

    @property
    def fixtures(self) -> tuple[str, ...]:
        return (FIXTURE,)

    def disturb(self, context: DisturbanceContext) -> None:
        context.say("Begin", detail=f"{self.parallel} {self.way}s of {self.size_mb} MB at once")
        with k6(context, "_transfer.js", self._load(context)) as beside:
            try:
                while beside.process.poll() is None:
                    context.wait(0.1)
            finally:
                found = self.events(beside, time.time())
                context.log.extend(found)
        context.say("End")
        if beside.process.returncode or not found:
            raise beside.complain("no transfer began")

    def events(self, beside: Beside, until_s: float) -> list[Event]:
        """A Transfer for each that was over, or had begun and was broken off at `until_s`. MeasuringError for a line that says something else."""
        begun = [_matched(_BEGAN, line) for line in beside.lines() if line.startswith("begun ")]
        ended = [_matched(_LINE, line) for line in beside.lines() if line.startswith("transfer ")]
        over = {line[1] for line in ended}
        found = [
            Event(beside.at_s(line[2]), "lab", "", line[1], "Transfer", self._words(*line.group(3, 4, 5, 6)))
            for line in ended
        ]
        for line in begun:
            if line[1] not in over:
                took_ms = max(0.0, until_s - beside.at_s(line[2])) * 1e3
                words = self._words(f"{took_ms:.3f}", "-", "0", UNENDED)
                found.append(Event(until_s, "lab", "", line[1], "Transfer", words))
        return found

    def _words(self, took_ms: str, first_ms: str, status: str, why: str) -> str:
        first = "-" if first_ms == "-" else f"{float(first_ms) * 1e-3:.6f} s"
        took = f"{self.way} {PAGES[self._page]} bytes {float(took_ms) * 1e-3:.6f} s"
        return f"{took} first {first} status {status}" + ("" if why == "-" else f" {why}")

    @property
    def _page(self) -> str:
        return f"{self.size_mb}MB.bin"

    def _load(self, context: DisturbanceContext) -> dict[str, object]:
        entry = context.system.entry()
        duration, grace = f"{round(self.for_s * 1000)}ms", f"{round(self.ends_s * 1000)}ms"
        scenario = {"executor": "constant-vus", "vus": self.parallel, "duration": duration, "gracefulStop": grace}
        return {
            "url": entry.base_url,
            "host": entry.host,
            "upload": self.way == "upload",
            "page": self._page,
            "page_bytes": PAGES[self._page],
            "timeout_ms": round((self.for_s + self.ends_s) * 1000),
            "scenario": scenario,
        }


def _matched(form: re.Pattern[str], line: str) -> re.Match[str]:
    if (found := form.fullmatch(line)) is None:
        raise MeasuringError("k6 _transfer.js", f"said {line[:120]!r}", "tell the lab's makers")
    return found
