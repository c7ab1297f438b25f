"""How long a system takes to come up, against nginx started by hand with the same configuration until curl gets its page.

By hand: the nginx.conf that the lab rendered, in the client's place, with the lab's backend behind it; so what the lab does
more is the network, the backend, the probes and the wait for all of them. A fresh one each time, lab and by hand in pairs.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lab.analysis.selfbench import Report, alone, compared
from lab.base.errors import MeasuringError
from lab.base.files import writing
from lab.experiments.selfbench.process import ended
from lab.model.variants.variants import Variant
from lab.targets.base import System, Target
from lab.targets.common.process import scratch
from lab.targets.local.images.ingress_nginx import CONFIG

STARTS_S = 10
SCRIPT = f"""\
#!/usr/bin/env bash
# By hand: start nginx, ask until it answers, end it. Usage: start.sh CONFIG HOST. Prints how many microseconds the start took.
set -euo pipefail
began=${{EPOCHREALTIME/./}}
nginx -c "$1" &
trap 'kill $!; wait' EXIT
until curl -sf -o /dev/null -H "Host: $2" http://127.0.0.1/1kB.bin; do
  ((SECONDS < {STARTS_S})) || exit 1
done
echo $((${{EPOCHREALTIME/./}} - began))
"""
"""No pause between questions: each takes curl longer than nginx needs."""
NOTE = "the lab's: network, backend, proxy and their probes; by hand: the proxy alone"
Say = Callable[[str], None]


class Start(BaseModel):
    """Seconds; `by_hand_s` None where nothing was started by hand."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lab_s: float
    by_hand_s: float | None


def measure(
    target: Target, variant: Variant, count: int, say: Say = lambda _: None, by_hand: bool = True
) -> list[Start]:
    """`count` bring-ups, each followed by one by hand. MeasuringError when one of them does not come up."""
    if by_hand and shutil.which("curl") is None:
        raise MeasuringError("selfbench: curl", "is not on PATH", "apt-get install curl")
    found: list[Start] = []
    for _ in range(count):
        began = time.monotonic()
        with target.up(variant) as system:
            lab_s = time.monotonic() - began
            found.append(Start(lab_s=lab_s, by_hand_s=_by_hand(system) if by_hand else None))
        say(f"bring-up: lab {lab_s:.2f} s")
    return found


def rows_of(target: str, found: list[Start]) -> Report:
    lab, hand = [start.lab_s for start in found], [s.by_hand_s for s in found if s.by_hand_s is not None]
    if len(hand) == len(lab):
        return Report(rows=(compared("bring-up", target, "s", lab, hand, NOTE),))
    return Report(
        rows=(alone("bring-up", target, "s", lab, "pods of a cluster: by hand there is no such thing in seconds"),)
    )


def _by_hand(system: System) -> float:
    """Seconds from nginx's start to the first answer."""
    shown = system.exec("proxy", ["cat", CONFIG])
    if shown.returncode:
        raise MeasuringError("selfbench: by hand", f"{CONFIG} cannot be read: {shown.stderr.strip()}")
    with scratch() as folder:
        text = own_folder(shown.stdout, folder)
        with writing(folder, "TMPDIR"):
            folder.chmod(0o755)  # a worker may be another user
            (folder / "nginx.conf").write_text(text)
            (folder / "start.sh").write_text(SCRIPT)
        with open(folder / "said", "wb") as said, open(folder / "complained", "wb") as complained:
            argv = ["bash", "start.sh", str(folder / "nginx.conf"), system.entry().host]
            status = ended(system.popen(argv, folder, said, complained), STARTS_S + 5)
        told = (folder / "said").read_text().split()
        if status or not told:
            why = " ".join((folder / "complained").read_text(errors="replace").split())[-300:]
            raise MeasuringError("selfbench: by hand", f"nginx did not answer (exit status {status}): {why}")
        return int(told[0]) * 1e-6


def own_folder(config: str, folder: Path) -> str:
    """The same configuration, writing where it may: the paths of the container's own folders lie in `folder`."""
    return config.replace("/tmp/nginx/", f"{folder}/").replace("/var/log/nginx/", f"{folder}/")
