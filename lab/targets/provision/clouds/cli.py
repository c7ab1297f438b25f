"""A cloud's command line as this lab uses it: asked for JSON, or told to do something while its words are passed on.

What it says when it fails becomes place, fault, remedy: `doctl: Unable to authenticate you` → `doctl auth init`. A text
that no pattern knows is shown as it is. Refuses to retry: what a cloud has begun, the next `just up` finds.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from lab.base.errors import LabError, UsageError
from lab.targets.cluster import programs

ASK_S = 90.0


class CloudError(LabError):
    """The cloud did not do what it was told, or not in time: something may exist there now, and cost money."""


@dataclass(frozen=True, slots=True)
class Cli:
    """One program. `remedies`: (pattern over what it said, case ignored) → what to do; the first that matches counts."""

    name: str
    install: str
    remedies: Sequence[tuple[str, str]]

    def find(self) -> None:
        """UsageError unless it is on PATH."""
        if shutil.which(self.name) is None:
            raise UsageError(self.name, "is not on PATH", self.install)

    def ask(self, arguments: Sequence[str]) -> str:
        """What it answers on stdout; changes nothing in the cloud. UsageError with its own words when it fails."""
        self.find()
        done = programs.run([self.name, *arguments], ASK_S)
        if done.returncode:
            raise UsageError(self._place(arguments), programs.last_words(done), self._remedy(done.stdout + done.stderr))
        return done.stdout

    def ask_json(self, arguments: Sequence[str]) -> Any:
        """`ask`, decoded; nothing at all counts as an empty list, as some versions print it."""
        answer = self.ask([*arguments, "--output", "json"]).strip()
        try:
            return json.loads(answer or "[]")
        except ValueError:
            fault = f"expected JSON, got {answer[:120]!r}"
            raise UsageError(self._place(arguments), fault, f"another version of {self.name}? {self.install}") from None

    def do(self, arguments: Sequence[str], say: Callable[[str], None], deadline_s: float, remedy: str) -> None:
        """Change something: every line it says is passed on. CloudError when it fails or takes longer than the deadline."""
        self.find()
        place, said, late = self._place(arguments), list[str](), threading.Event()
        command = [self.name, *arguments]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            timer = threading.Timer(deadline_s, lambda: (late.set(), process.kill()))
            timer.start()
            try:
                for line in process.stdout or ():
                    said.append(line.rstrip())
                    say(said[-1])
            except BaseException:
                process.send_signal(signal.SIGINT)  # it may undo or say something
                say(f"{place}: interrupted; {remedy}")
                raise
            finally:
                timer.cancel()
        if late.is_set():
            raise CloudError(place, f"not done after {deadline_s / 60:.0f} minutes", remedy)
        if process.returncode:
            words = programs.last_words(subprocess.CompletedProcess(command, process.returncode, "\n".join(said), ""))
            raise CloudError(place, words, "; ".join(filter(None, [self._remedy("\n".join(said)), remedy])))

    def _place(self, arguments: Sequence[str]) -> str:
        """The program and its verb: `doctl kubernetes cluster create`."""
        return " ".join([self.name, *takewhile(str.isalpha, arguments)])

    def _remedy(self, said: str) -> str:
        return next((cure for pattern, cure in self.remedies if re.search(pattern, said, re.IGNORECASE)), "")
