"""Other people's programs (docker, kind, kubectl …): run with a deadline, their failures as place, fault, remedy."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from lab.base.errors import UsageError


def run(
    argv: Sequence[str], timeout_s: float, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it said and its exit status, whatever that is. UsageError when it cannot be run or does not end in time."""
    try:
        return subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env=env,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError(argv[0], "not on PATH", "`just doctor` says how to get it") from None
    except OSError as error:
        raise UsageError(
            argv[0], f"cannot be run: {error.strerror}", "`just doctor` says which one is needed"
        ) from None
    except subprocess.TimeoutExpired:
        fault = f"no answer in {timeout_s:.0f} s (`{' '.join(argv[:3])} …`)"
        raise UsageError(argv[0], fault, "try it by hand") from None


def output(argv: Sequence[str], timeout_s: float, place: str, remedy: str) -> str:
    """Its stdout. UsageError at `place` with its own last words when it fails."""
    done = run(argv, timeout_s)
    if done.returncode:
        raise UsageError(place, last_words(done), remedy)
    return done.stdout


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that says something, where programs put what went wrong."""
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {done.returncode}"
