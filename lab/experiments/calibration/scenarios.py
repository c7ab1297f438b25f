"""What the known server does on purpose, with what load, and which measurements a calibration has. Starts nothing, writes nothing.

Open loops offer 1000 requests per second over 50 connections; closed loops have as many connections as make about that rate
of the server's delay, because a closed loop that runs as fast as it goes would measure the queue before the server.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lab.experiments.calibration.known_server import Behaviour
from lab.generators import GENERATORS, Generator, Installed
from lab.model import facts
from lab.model.load import Load
from lab.model.run import now
from lab.records.calibration import OVER_S, CalibrationRecord, Known
from lab.records.store import new_id
from lab.targets.base import Target

PAGE = "1kB.bin"
RATE_RPS = 1000.0
CONNECTIONS = 50
CEILING_S = 5.0
OVERLOAD_RPS = 200_000.0
"""What a generator that knows rates only is told where its ceiling is asked for: more than any here makes on one CPU."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`behaviour` None: the real backend answers, as fast as it can. `closed`: connections of a closed loop."""

    name: str
    says: str
    behaviour: Behaviour | None
    closed: int
    open: int = CONNECTIONS


_ALL = (
    Scenario("floor", "answers at once", Behaviour(), closed=1),
    Scenario("fixed", "answers after 10 ms", Behaviour(delay_s=0.010), closed=10),
    Scenario(
        "bimodal",
        "answers after 1 ms, and 5 of 100 after 100 ms",
        Behaviour(delay_s=0.001, slow_s=0.100, slow_every=20),
        closed=6,
    ),
    Scenario(
        "pause",
        "answers after 10 ms, and once, mid-run, nobody for 1 s",
        Behaviour(delay_s=0.010, pause_s=1.0),
        closed=10,
    ),
    Scenario("ceiling", "the lab's own backend (nginx, 1 kB), as fast as both can", None, closed=64, open=64),
)
SCENARIOS = {each.name: each for each in _ALL}


@dataclass(frozen=True, slots=True)
class Cell:
    """One generator in one scenario. `behaviour`: the server's, with the pause in the middle of what the generator records.

    `refusal`: why it cannot be measured there; empty = it can.
    """

    generator: str
    scenario: str
    load: Load
    calibration_s: float
    behaviour: Behaviour | None
    refusal: str = ""


def cell(generator: Generator, of: Scenario, duration_s: float) -> Cell:
    """Return the load that this generator makes there: an open loop where it has one (of a ceiling, a closed one)."""
    ceiling = of.behaviour is None
    models = ("closed", "open") if ceiling else ("open", "closed")
    is_open = next(model for model in models if model in generator.models) == "open"
    load = Load(
        url=f"http://192.0.2.1/{PAGE}",
        host="known.lab.test",
        connections=of.open if is_open else of.closed,
        duration_s=min(duration_s, CEILING_S) if ceiling else duration_s,
        rate_rps=(OVERLOAD_RPS if ceiling else RATE_RPS) if is_open else None,
    )
    # as long as asked for beyond what the generator leaves out, and no shorter than it takes at all (wrk2: 30 s)
    first_s, last_s = (math.ceil(load.duration_s + times * generator.calibration_s(load)) for times in (1, 4))
    longer = (replace(load, duration_s=float(seconds)) for seconds in range(first_s, last_s + 1))
    load = next((each for each in longer if generator.refusal(each) is None), load)
    calibration_s, how = generator.calibration_s(load), of.behaviour
    if how is not None and how.pause_s:
        how = replace(how, pause_at_s=calibration_s + (load.duration_s - calibration_s - how.pause_s) / 2)
    return Cell(generator.name, of.name, load, calibration_s, how, generator.refusal(load) or "")


def true_share_over(pause_s: float, delay_s: float, recorded_s: float) -> float:
    """Return the share of requests that a pause makes wait longer than OVER_S, of all that fall due, evenly, in `recorded_s`.

    A request due `t` before the pause ends has its answer `t` later; it waits longer than OVER_S if t > OVER_S, and is held
    by the pause if it is due no earlier than the delay before its begin. So (pause + delay - OVER_S) / recorded: arithmetic
    of the scenario, nothing measured. It is what a user who comes at any moment meets, whatever a generator sends.
    """
    return max(0.0, pause_s + delay_s - OVER_S) / recorded_s


def planned(cells: Sequence[Cell], repeats: int, seed: int) -> list[tuple[int, Cell]]:
    """Return (repeat from 1, cell): every repeat has each measurable cell once, in an order of its own."""
    order = random.Random(seed)
    found: list[tuple[int, Cell]] = []
    for repeat in range(1, repeats + 1):
        mine = [each for each in cells if not each.refusal]
        order.shuffle(mine)
        found += [(repeat, each) for each in mine]
    return found


def takes_s(slots: Sequence[tuple[int, Cell]]) -> float:
    """Estimate the time: a server's start and a generator's own take a second beside each load."""
    return sum(each.load.duration_s + 1.0 for _, each in slots)


@dataclass(frozen=True, slots=True)
class Ready:
    """`slots`: (repeat, cell) in the order of measuring; `installed`: by name, of those that are."""

    record: CalibrationRecord
    slots: Sequence[tuple[int, Cell]]
    installed: Mapping[str, Installed]


def prepare(
    target: Target,
    names: Sequence[str],
    scenarios: Sequence[str],
    duration_s: float,
    repeats: int,
    seed: int,
    command: Sequence[str],
) -> Ready:
    """Plan a calibration of these generators in these scenarios; what is not installed, or cannot make a load, is in the record with the reason."""
    known = GENERATORS
    found = {name: installed for name in names if (installed := target.installed(known[name]))}
    cells = [cell(known[name], SCENARIOS[each], duration_s) for name in found for each in scenarios]
    slots = planned(cells, repeats, seed)
    generators = (
        Known(
            name=name,
            version=found[name].version if name in found else None,
            installed=name in found,
            remedy=known[name].remedy,
            models=tuple(sorted(known[name].models)),
            latency_from=known[name].latency_from,
            refusals={each.scenario: each.refusal for each in cells if each.generator == name and each.refusal},
        )
        for name in names
    )
    record = CalibrationRecord(
        id=new_id("calibration"),
        created_at=now(),
        command=tuple(command),
        target=target.name,
        seed=seed,
        repeats=repeats,
        duration_s=duration_s,
        scenarios={name: SCENARIOS[name].says for name in scenarios},
        generators=tuple(generators),
        planned=len(slots),
        facts=facts.machine() | dict(target.facts()),
        git_commit=facts.git_commit(),
    )
    return Ready(record, slots, found)
