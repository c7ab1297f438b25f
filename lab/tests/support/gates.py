"""Ten gates of an unchanged tree and ten of one that became dearer, on local, by turns: `python -m lab.tests.support.gates`.

As a pull request's job does it, in a clone of this checkout: `gate --against HEAD baseline`. What is put in is not committed there: known
work, some 5 % of CPU per request at the ceiling; the unchanged ones end at once, as no rendered manifest differs. Prints a line a gate; exit 1 where more than two of the unchanged failed, fewer than eight
of the others were caught, or one took longer than six minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import yaml

from lab.model.facts import ROOT

ROUNDS, SEED = 10, 3200
MOST_FALSE, LEAST_CAUGHT, MOST_S = 2, 8, 360.0
OVERLAY, WORK = Path("manifests/overlays/ingress-nginx/kustomization.yaml"), "../../components/extra-work-4"


def main() -> int:
    failed: Counter[bool] = Counter()
    longest_s = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch, "checkout")
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(clone)], check=True)
        (clone / ".cache").symlink_to(ROOT / ".cache")
        shipped = (clone / OVERLAY).read_text()
        for number in range(ROUNDS):
            for dearer in (bool(number % 2), not number % 2):
                (clone / OVERLAY).write_text(with_work(shipped) if dearer else shipped)
                status, said, took_s = gated(clone, SEED + number)
                if status not in (0, 1):
                    raise RuntimeError(f"the gate was not measured to its end: exit status {status}: {said}")
                failed[dearer] += status == 1
                longest_s = max(longest_s, took_s)
                say(f"{number + 1:>2} {'dearer' if dearer else 'unchanged':9} exit {status}  {took_s:3.0f} s  {said}")
    say(
        f"\nunchanged: {failed[False]} of {ROUNDS} failed, at most {MOST_FALSE} may; dearer: {failed[True]} of {ROUNDS} caught,"
        f" at least {LEAST_CAUGHT} must be; the longest took {longest_s:.0f} s of {MOST_S:.0f}"
    )
    kept = failed[False] <= MOST_FALSE and failed[True] >= LEAST_CAUGHT and longest_s <= MOST_S
    return 0 if kept else 1


def with_work(overlay: str) -> str:
    """The overlay with known work in it."""
    return yaml.safe_dump({**yaml.safe_load(overlay), "components": [WORK]}, sort_keys=False)


def gated(checkout: Path, seed: int) -> tuple[int, str, float]:
    """(exit status, what it ended with, how long it took)."""
    began = time.monotonic()
    argv = [sys.executable, "-m", "lab", "gate", "--against", "HEAD", "ingress-nginx", f"--seed={seed}"]
    done = subprocess.run(argv, cwd=checkout, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    told = [line for line in (done.stdout if done.returncode in (0, 1) else done.stderr).splitlines() if line.strip()]
    rows = [line.strip() for line in told if "CPU per request" in line and "ingress-nginx" in line]
    return done.returncode, " | ".join([*rows, *told[-1:]]), time.monotonic() - began


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  (a program of the tests)


if __name__ == "__main__":
    sys.exit(main())
