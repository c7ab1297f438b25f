"""The lab itself over an hour: `python -m lab.tests.support.soak SECONDS`. Its memory, file descriptors and time per sample must not grow.

One run on the local target of as many blocks as take that long, looked at from outside. Prints a line a minute and the verdict;
exit 1 where something grew: the last quarter's median against the second quarter's (the first one warms caches up).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from lab.tests.support.sweep_texts import TINY

ROOT = Path(__file__).parents[3]
BLOCKS = 1000
EVERY_S = 5.0
MOST = {"memory_bytes": 1.10, "descriptors": 1.02, "sample_s": 1.15}
"""How much of the second quarter the last one may be. Of time more: other programs stretch it."""
LEAST = {"memory_bytes": 5e6, "descriptors": 8.0, "sample_s": 0.1}
"""Less than that more is no growth: a load has a few descriptors more than none."""


class Look(NamedTuple):
    """Of the lab's own process inside its namespaces, whose descriptors root or its user sees. `samples`: complete ones so far."""

    at_s: float
    memory_bytes: int
    descriptors: int
    samples: int


def grown(looks: Sequence[Look]) -> list[str]:
    """What grew, in words; and that there is too little to tell."""
    quarter = len(looks) // 4
    if quarter < 2:
        return [f"{len(looks)} looks are too few to tell"]
    early, late = looks[quarter : 2 * quarter], looks[-quarter:]
    of: dict[str, Callable[[Sequence[Look]], float]] = {
        "memory_bytes": lambda part: statistics.median(each.memory_bytes for each in part),
        "descriptors": lambda part: statistics.median(each.descriptors for each in part),
        "sample_s": lambda part: (part[-1].at_s - part[0].at_s) / max(1, part[-1].samples - part[0].samples),
    }
    return [
        f"{name}: {told(early):.6g} in the second quarter, {told(late):.6g} in the last"
        for name, told in of.items()
        if told(late) > MOST[name] * told(early) and told(late) > told(early) + LEAST[name]
    ]


def own(outer: psutil.Process) -> psutil.Process | None:
    """The lab's process that measures: the first descendant that is a Python with its arguments."""
    with suppress(psutil.Error):
        return next((each for each in outer.children(recursive=True) if "lab" in each.cmdline()[1:3]), None)
    return None


def soak(seconds: float) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "soak.toml").write_text(TINY)
        words = ["bench", "keepalive", "--sweep", str(folder / "soak.toml"), "--blocks", str(BLOCKS), "--seed", "1"]
        env = {**os.environ, "LAB_RUNS": str(folder / "runs"), "PYTHONPATH": str(ROOT)}
        with (folder / "said").open("wb") as said:
            lab = subprocess.Popen([sys.executable, "-m", "lab", *words], env=env, stdout=said, stderr=said)
        began_s, looks, minute = time.monotonic(), list[Look](), 0
        while time.monotonic() - began_s < seconds and lab.poll() is None:
            time.sleep(EVERY_S)
            inner = own(psutil.Process(lab.pid))
            with suppress(psutil.Error):
                if inner is not None:
                    samples = sum(1 for _ in folder.glob("runs/*/samples/*/sample.json"))
                    looks.append(Look(time.monotonic() - began_s, inner.memory_info().rss, inner.num_fds(), samples))
            if looks and looks[-1].at_s // 60 > minute:
                minute = int(looks[-1].at_s // 60)
                print(looks[-1], flush=True)  # noqa: T201  (a program of the tests)
        early = lab.poll()
        lab.terminate()
        lab.wait(60)
        faults = grown(looks) + (
            [f"ended by itself with {early}: {(folder / 'said').read_text()[-500:]}"] if early else []
        )
        print("\n".join(faults) or f"nothing grew over {looks[-1].samples} samples")  # noqa: T201
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(soak(float(sys.argv[1])))
