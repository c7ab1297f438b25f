"""The disruption by parallel transfers of large bodies, up or down, concurrent with the load's small requests.

Transfers follow one another for a given time, and the duration of each is recorded. A transfer that the proxy refuses
(status 413) or that breaks off is recorded like a complete one, and is no error of the run.
"""

from __future__ import annotations

import re
import time
from typing import Literal

from pydantic import Field, model_validator

from lab.base.errors import MeasuringError
from lab.base.validation import refuse_broken_rules
from lab.disturbances._background import FIXTURE, K6Process, run_k6
from lab.model.disturbance import Disturbance, DisturbanceContext
from lab.model.events import Event
from lab.model.pages import PAGES

START_S = 5.0
"""The seconds that k6 takes at most to start and to end."""
UPLOADING_MB = 400
"""The maximum size of all concurrent uploads together, in megabytes, because of memory.

k6 needs about three times the size of its concurrent uploads (1.3 GB for 4 of 100 MB). The backend needs that size once.
"""
_BEGAN = re.compile(r"begun (\d+) (\d+)")
_LINE = re.compile(r"transfer (\d+) (\d+) ([\d.]+) ([\d.]+|-) (\d+) (.+)")
UNFINISHED = "broken off: it did not end in its time"


class Transfer(Disturbance):
    """The disruption by parallel uploads or downloads of large bodies, concurrent with the load's small requests."""

    loads_client = True

    kind: Literal["transfer"] = "transfer"
    way: Literal["upload", "download"] = Field(description="which way the bodies go")
    size_mb: Literal[1, 10, 100] = Field(default=10, description="how large each is")
    parallel: int = Field(default=2, ge=1, le=100, description="how many at once, each on a new connection")
    for_s: float = Field(default=10.0, ge=1, le=3600, description="how long new ones begin")
    ends_s: float = Field(default=10.0, ge=1, le=600, description="how long the last may take beyond that")

    @model_validator(mode="after")
    def _check_memory(self) -> Transfer:
        maximum = UPLOADING_MB // self.size_mb
        message = f"disturbance.parallel: {maximum} uploads of {self.size_mb} MB at most, for want of memory"
        refuse_broken_rules((self.way == "upload" and self.parallel > maximum, message))
        return self

    @property
    def lasts_s(self) -> float:
        """The seconds from the beginning of the disruption until the k6 process that makes the transfers must have ended."""
        return self.for_s + self.ends_s + START_S

    @property
    def acts_s(self) -> float:
        """The seconds, from the beginning of the disruption, during which transfers of large bodies are started.

        Transfers that are still under way then have `ends_s` more seconds, and are broken off after that. The event End
        is logged when all transfers have ended.
        """
        return self.for_s

    @property
    def fixtures(self) -> tuple[str, ...]:
        """The names of the fixtures (components of manifests/fixtures) that the disruption adds to the variant.

        It is always the fixture `answers`, to which large bodies are uploaded.
        """
        return (FIXTURE,)

    def disturb(self, context: DisturbanceContext) -> None:
        """Run the transfers, and log an event for each of them.

        Raises:
            MeasuringError: k6 failed or has logged a line of an unknown form, or no transfer began.
            LoadEndedError: The load ended before the transfers.

        """
        context.say("Begin", detail=f"{self.parallel} {self.way}s of {self.size_mb} MB at once")
        with run_k6(context, "_transfer.js", self._build_load(context)) as client:
            try:
                while client.process.poll() is None:
                    context.wait(0.1)
            finally:
                transfers = self.events(client, time.time())
                context.log.events.extend(transfers)
        context.say("End")
        if client.process.returncode or not transfers:
            raise client.complain("no transfer began")

    def events(self, client: K6Process, until_s: float) -> list[Event]:
        """Return an event of the kind Transfer for each transfer that has begun, whether it was completed or broken off.

        Args:
            client: The k6 process that makes the transfers.
            until_s: The time at which unfinished transfers count as broken off, in seconds since the epoch by the lab's clock.

        Raises:
            MeasuringError: A line of the k6 process's log has an unknown form.

        """
        begun = [_match_line(_BEGAN, line) for line in client.lines() if line.startswith("begun ")]
        ended = [_match_line(_LINE, line) for line in client.lines() if line.startswith("transfer ")]
        over = {line[1] for line in ended}
        transfers = [
            Event(client.at_s(line[2]), "lab", "", line[1], "Transfer", self._format_detail(*line.group(3, 4, 5, 6)))
            for line in ended
        ]
        for line in begun:
            if line[1] not in over:
                took_ms = max(0.0, until_s - client.at_s(line[2])) * 1e3
                detail = self._format_detail(f"{took_ms:.3f}", "-", "0", UNFINISHED)
                transfers.append(Event(until_s, "lab", "", line[1], "Transfer", detail))
        return transfers

    def _format_detail(self, took_ms: str, first_ms: str, status: str, reason: str) -> str:
        first = "-" if first_ms == "-" else f"{float(first_ms) * 1e-3:.6f} s"
        took = f"{self.way} {PAGES[self._page]} bytes {float(took_ms) * 1e-3:.6f} s"
        return f"{took} first {first} status {status}" + ("" if reason == "-" else f" {reason}")

    @property
    def _page(self) -> str:
        return f"{self.size_mb}MB.bin"

    def _build_load(self, context: DisturbanceContext) -> dict[str, object]:
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


def _match_line(form: re.Pattern[str], line: str) -> re.Match[str]:
    if (match := form.fullmatch(line)) is None:
        raise MeasuringError("k6 _transfer.js", f"said {line[:120]!r}", "report it to the lab's authors")
    return match
