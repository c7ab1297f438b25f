"""A whole run of the lab, as a user starts it, timed from outside: what of it is not measuring and not bringing up.

own time = wall time − bring-ups (as its samples have them) − planned measuring and warm-up, of every attempt. Python's start,
rendering, the namespaces, canaries, histograms, fsync and the table are in it, and so is a generator that takes longer than its time.
"""

from __future__ import annotations

from lab.analysis.selfbench import Overhead, account
from lab.base.files import writing
from lab.experiments.selfbench.process import measured_run
from lab.targets.common.scratch import scratch

BLOCKS = 3
SWEEP = """\
title = "Self-benchmark"
question = "How long does the lab itself take?"
blocks = 1

[[points]]
name = "ceiling"
generator = "wrk"
connections = 16
duration_s = {duration_s:g}

[[points]]
name = "rate-500"
generator = "k6"
connections = 50
rate_rps = 500
duration_s = {duration_s:g}
"""


def takes_s(duration_s: float) -> float:
    """About: two loads in every block, of the baseline and again, and one block that warms up."""
    return (duration_s + 1.5) * 2 * (2 * BLOCKS + 1)


def whole_run(duration_s: float) -> Overhead:
    """`lab bench` of the baseline on the local target, wrk and k6 for `duration_s` (>= 1) each. MeasuringError when it could not measure."""
    with scratch() as folder:
        sweep = folder / "selfbench.toml"
        with writing(folder, "TMPDIR"):
            sweep.write_text(SWEEP.format(duration_s=duration_s))
        words = ["bench", f"--sweep={sweep}", f"--blocks={BLOCKS}", "--json", "ingress-nginx"]
        run, done = measured_run("selfbench: lab bench", folder / "runs", words, takes_s(duration_s))
        return account(run.samples(), done.wall_s)
