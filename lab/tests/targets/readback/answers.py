"""A system that answers what read-backs ask as it is told."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from lab.model.endpoint import Endpoint, Response
from lab.model.variants.variants import Check
from lab.targets.readback import read_back

MISSING = "No such file or directory"


class Answers:
    """By a command's first words or, of those without an answer of their own, by the paths after them; what has none, or None, fails."""

    def __init__(self, texts: Mapping[str, str | None], pods: int = 1, log: str = "") -> None:
        self.texts, self.ready, self.log = texts, pods, log
        self.asked: list[list[str]] = []

    def exec(self, role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.asked.append(list(argv))
        named = [words for words in (" ".join(argv[:2]), argv[0]) if words in self.texts]
        texts = [self.texts.get(key) for key in (named[:1] or argv[1:])]
        said = "".join(text for text in texts if text is not None)
        failed = None in texts
        return subprocess.CompletedProcess(list(argv), int(failed), said, f"{argv[0]}: {MISSING}\n" if failed else "")

    def pods(self, role: str) -> Sequence[Mapping[str, Any]]:
        return [{"spec": {}}] * self.ready

    def log_tail(self) -> str:
        return self.log

    def entry(self) -> Endpoint:
        return Endpoint("http://192.0.2.1", "h")

    def pod_address(self, role: str) -> str:
        return "192.0.2.7"

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        return Response(200, b"", {"content-encoding": "gzip"} if headers else {})


def observed(system: Any, **check: Any) -> tuple[bool, str, str]:
    (reading,) = read_back(system, [Check(**check)])
    return reading.ok, reading.observed, reading.detail
