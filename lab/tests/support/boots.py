"""Copies of a committed run as if it had been measured on another boot, with another effect."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.records import packed

ROOT = Path(__file__).parents[3]
Change = Callable[[dict[str, Any]], None]


def on_boot(name: str, into: Path, boot: str, change: Change | None = None, cost: float = 1.0) -> Path:
    """Copy a run of data/reference to `into`, which is not there yet, with this boot's id, in which the run's own ends.

    `change`: of run.json's content. `cost`: what the proxy's CPU seconds of every variant's sample are multiplied by.
    """
    shutil.copytree(ROOT / "data" / "reference" / name, into, ignore=shutil.ignore_patterns("boot-*"))
    record = json.loads((into / "run.json").read_bytes())
    record["id"] += f"-{boot}"
    record["facts"]["boot_id"] = boot
    if change is not None:
        change(record)
    (into / "run.json").write_text(json.dumps(record))
    if cost != 1.0:
        path = into / packed.SAMPLES
        samples = [json.loads(line) for line in packed.read_lines(path)]
        for sample in samples:
            if sample["role"] == "variant" and "proxy" in sample["usage"]:
                sample["usage"]["proxy"]["cpu_s"] *= cost
        path.write_bytes(packed.pack_lines(json.dumps(sample) for sample in samples))
    return into
