"""A cloud's command line as this lab uses it: asked for JSON, or told to do something while its words are passed on.

What it says when it fails becomes place, fault, remedy: `doctl: Unable to authenticate you` → `doctl auth init`. A text
that no pattern knows is shown as it is. Refuses to retry: what a cloud has begun, the next `just up` finds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.base.errors import LabError, UsageError
from lab.targets.cluster import programs

ASK_S = 90.0
KEPT_LINES = 15
"""Of what a command said, for the fault's text."""


class CloudError(LabError):
    """The cloud did not do what it was told, or not in time: something may exist there now, and cost money."""


@dataclass(frozen=True, slots=True)
class Cli:
    """One program. `remedies`: (pattern over what it said, case ignored) → what to do; the first that matches counts."""

    name: str
    install: str
    remedies: Sequence[tuple[str, str]]

    def ask(self, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """What it answers on stdout; changes nothing in the cloud. UsageError with its own words when it fails."""
        self.find()
        done = programs.run([self.name, *arguments], ASK_S, env={**os.environ, **(env or {})})
        if done.returncode:
            said = [*done.stdout.splitlines(), *done.stderr.splitlines()]
            raise UsageError(
                *self._fault(arguments, said, done.returncode, "see `lab/targets/provision/`, or its own help")
            )
        return done.stdout

    def ask_json(self, arguments: Sequence[str]) -> Any:
        """`ask`, decoded; nothing at all counts as an empty list, as some versions print it."""
        answer = self.ask(arguments)
        try:
            return json.loads(answer.strip() or "[]")
        except ValueError:
            fault = f"expected JSON, got {answer.strip()[:120]!r}"
            raise UsageError(self._place(arguments), fault, f"another version of {self.name}? {self.install}") from None

    def do(self, arguments: Sequence[str], say: Callable[[str], None], deadline_s: float, remedy: str) -> None:
        """Change something: every line it says is passed on. CloudError when it fails or takes longer than the deadline."""
        self.find()
        place, last = self._place(arguments), deque[str](maxlen=KEPT_LINES)
        late = threading.Event()
        try:
            process = subprocess.Popen(
                [self.name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(self.name, f"cannot be started: {error.strerror}", self.install) from None

        def end() -> None:
            late.set()
            _signal(process, signal.SIGKILL)

        timer = threading.Timer(deadline_s, end)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip():
                    last.append(line.strip())
                    say(line.rstrip())
            process.wait()
        except BaseException:
            _signal(process, signal.SIGINT)  # it may undo or say something
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
            say(f"{place}: interrupted; {remedy}")
            raise
        finally:
            timer.cancel()
        if late.is_set():
            raise CloudError(place, f"not done after {deadline_s / 60:.0f} minutes", remedy)
        if process.returncode:
            where, fault, cure = self._fault(arguments, list(last), process.returncode, "")
            raise CloudError(where, fault, f"{cure}; {remedy}" if cure else remedy)

    def find(self) -> None:
        """UsageError unless it is on PATH."""
        if shutil.which(self.name) is None:
            raise UsageError(self.name, "is not on PATH", self.install)

    def _place(self, arguments: Sequence[str]) -> str:
        """The program and its verb: `doctl kubernetes cluster create`."""
        words = []
        for argument in arguments:
            if argument.startswith("-") or not argument.isalpha():
                break
            words.append(argument)
        return " ".join([self.name, *words])

    def _fault(self, arguments: Sequence[str], said: Sequence[str], status: int, remedy: str) -> tuple[str, str, str]:
        text = "\n".join(said)
        found = next((cure for pattern, cure in self.remedies if re.search(pattern, text, re.IGNORECASE)), remedy)
        lines = [line.strip() for line in said if line.strip()]
        telling = next((line for line in lines if re.search(r"error|✖|denied", line, re.IGNORECASE)), None)
        return self._place(arguments), telling or (lines[-1] if lines else f"exit status {status}"), found


def _signal(process: subprocess.Popen[str], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return  # it has ended by itself
