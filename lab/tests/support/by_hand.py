"""The lab's sample against the same load by hand, on the same pods: `python -m lab.tests.support.by_hand`, where `just up kind` was.

By hand is what a person types: the sample's own command behind `kubectl exec`, its `Requests/sec`. Ten rounds, who is first drawn by lot.
Prints a line a round and the geometric mean of lab / by hand; exit 1 where that is not within 0.90 to 1.10.
"""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence

from lab.experiments.bench.measurable import choose_generator
from lab.measure.measurement import SampleRun
from lab.measure.steady import SteadyRegime
from lab.model.plan import Arm, Slot
from lab.model.samples import Sample
from lab.model.variants.variants import load_variant
from lab.records.sweep_files import load_sweep
from lab.targets.cluster import kind
from lab.targets.cluster.api import CLIENT_NAMESPACE, CLIENT_POD
from lab.targets.clusters import KIND as TARGET
from lab.targets.readback import read_back

ROUNDS, SEED = 10, 26
WITHIN = (0.90, 1.10)
SWEEP, NAME = "quick", "ceiling"
_TOLD = re.compile(r"^Requests/sec:\s+([\d.]+)$", re.MULTILINE)


def by_hand(kubectl: Sequence[str], argv: Sequence[str]) -> float:
    """Requests per second of one load, as the generator itself prints them."""
    command = [*kubectl, "exec", f"--namespace={CLIENT_NAMESPACE}", CLIENT_POD, "--", *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    told = _TOLD.search(done.stdout)
    if told is None:
        raise ValueError(f"wrk printed no rate: {done.stdout[-300:]}")
    return float(told[1])


def main() -> int:
    variant = load_variant("baseline")
    TARGET.check()
    try:
        point = next(each for each in load_sweep(SWEEP)[1].load_points if each.name == NAME).on_cpus(
            TARGET.generator_cpus()
        )
        chosen = choose_generator(point, TARGET)
        TARGET.check_variant(variant, [point])
        with TARGET.up(variant) as system:
            slot = Slot(0, 1, Arm("baseline", "baseline", "baseline", None), point)
            run = SampleRun(TARGET, system, slot, chosen, 0, 0.0, read_back(system, variant.readback))
            kubectl = kind.connect().kubectl
            argv = plain(measured(run).argv)
            ratios = [one_round(number, run, kubectl, argv) for number in range(ROUNDS)]
    finally:
        TARGET.close()
    mean = statistics.geometric_mean(ratios)
    say(f"geometric mean of {ROUNDS} rounds, lab / by hand: {mean:.3f}")
    return 0 if WITHIN[0] <= mean <= WITHIN[1] else 1


def plain(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Without the script that has wrk tell more: nobody types that."""
    at = argv.index("-s") if "-s" in argv else len(argv)
    return argv[:at] + argv[at + 2 :]


def measured(run: SampleRun) -> Sample:
    return run.measure(SteadyRegime(run.system, run.slot.point), 1).sample


def one_round(number: int, run: SampleRun, kubectl: Sequence[str], argv: Sequence[str]) -> float:
    """Lab / by hand."""

    def lab() -> float:
        made = measured(run)
        if made.achieved_rps is None:
            raise ValueError(f"the lab's sample has no rate: {made.reason} {made.detail}")
        return made.achieved_rps

    ways = {"lab": lab, "by hand": lambda: by_hand(kubectl, argv)}
    order = random.Random(SEED + number).sample(sorted(ways), len(ways))
    rates = {name: ways[name]() for name in order}
    ratio = rates["lab"] / rates["by hand"]
    say(
        f"round {number + 1}: lab {rates['lab']:,.0f} req/s, by hand {rates['by hand']:,.0f} req/s, {ratio:.3f} ({order[0]} first)"
    )
    return ratio


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  (a program of the tests)


if __name__ == "__main__":
    sys.exit(main())
