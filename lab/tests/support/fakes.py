"""A target, a system and a generator that behave as told, so that the loop can be tested without measuring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import polars as pl

from lab.base.errors import LabError
from lab.base.files import write_texts
from lab.generators import Generator, Installed
from lab.measure.loop import MeasuringLoop
from lab.measure.measurement import ChosenGenerator
from lab.model.endpoint import ClockOffset, Endpoint, GeneratorsOutput, HowToEnd, Response, Role
from lab.model.events import Event
from lab.model.leftovers import Leftovers
from lab.model.load import GeneratorLoad, GeneratorResult, OutputError, SpokenProtocol
from lab.model.pairs import SIDES, Renewed, Side
from lab.model.plan import Shape, Slot, list_arms, plan_samples
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.model.variants.variants import Check, Variant
from lab.records.store import RunStore
from lab.stats.histogram import Histogram
from lab.targets.base import do_nothing
from lab.targets.common.sampler import Sampler
from lab.targets.readback import Reading
from lab.tests.support.factories import make_point
from lab.tests.support.made_runs import made_record, variant_record

PAGE = b"x" * 1024
LASTS_S = 1.0
"""A load of `point`."""


def point(name: str = "ceiling", rate_rps: float | None = None) -> LoadPoint:
    return make_point(name, generator="fake", connections=1, rate_rps=rate_rps, duration_s=1.0, warmup_s=0.0)


def variant(name: str = "ingress-nginx", baseline: str | None = None, readback: Sequence[Check] = ()) -> Variant:
    bare: dict[str, Any] = {"title": name, "study": None, "knobs": (), "own_knobs": (), "manifests": ()}
    return Variant(name=name, baseline=baseline, readback=tuple(readback), **bare)


@dataclass
class FakeGenerator:
    """Runs `script` with this Python; its stdout is a JSON record, its status and delay are the script's."""

    script: str = 'print(\'{"requests": 1000, "duration_s": 1.0, "bytes": 1100000, "errors": {}}\')'
    name: str = "fake"
    binary: str = sys.executable
    models: frozenset[Literal["open", "closed"]] = frozenset({"open", "closed"})
    latency_from: Literal["due", "sent"] = "sent"
    remedy: str = ""
    version_flag: str = "--version"
    aliases: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    own: bool = False
    own_backend: bool = False
    protocols: frozenset[SpokenProtocol] = frozenset({"h1"})

    def version(self, output: str) -> str | None:
        return "1"

    def refusal(self, load: GeneratorLoad) -> str | None:
        return None

    def calibration_s(self, load: GeneratorLoad) -> float:
        return 0.0

    def ends_on_interrupt(self, load: GeneratorLoad) -> bool:
        return False

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        return {"load.py": self.script}

    def argv(self, load: GeneratorLoad) -> list[str]:
        return [self.binary, "load.py"]

    def requests(self, stdout: str, stderr: str, load: GeneratorLoad) -> pl.DataFrame:
        raise OutputError("expected a row for every request, which this one does not tell")

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        try:
            record = json.loads(stdout)
        except ValueError:
            raise OutputError(f"expected JSON, got {stdout[:40]!r}") from None
        requests, lasted_s = record["requests"], record["duration_s"]
        return GeneratorResult(
            requests,
            lasted_s,
            Histogram.of_values([0.001] * requests),
            lasted_s,
            errors=record["errors"],
            size_bytes=record["bytes"],
            dropped=record.get("dropped", 0),
        )


class Lasting(Sampler):
    """Sees a load that ended at once last as long as it says it did."""

    def observation(self) -> Observation:
        seen = Sampler.observation(self)
        return replace(seen, elapsed_s=seen.elapsed_s + LASTS_S)


@dataclass
class FakeSystem:
    through_proxy: bytes = PAGE
    limits: Sequence[str] = ()
    restarted: int = 0
    renewals: int = 0
    happened: Sequence[Event] | LabError = ()
    done: list[str] = field(default_factory=list[str])
    """What a disturbance did, in words."""
    left: list[Leftovers] = field(default_factory=list[Leftovers])
    """What is seen at one look after another; nothing once they are used up."""
    looks: int = 0

    def entry(self) -> Endpoint:
        return Endpoint("http://proxy", "h")

    def endpoint(self, point: LoadPoint) -> Endpoint:
        return Endpoint("http://proxy", "h")

    def backend_endpoint(self) -> Endpoint:
        return Endpoint("http://backend", "h")

    def pod_address(self, role: Role) -> str:
        return "192.0.2.1"

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        return Response(200, PAGE if "backend" in endpoint.base_url else self.through_proxy, {})

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        write_texts(cwd, files or {})
        return subprocess.Popen(argv, cwd=cwd, stdout=stdout, stderr=stderr, start_new_session=True)

    def held(self, *what: Any, **named: Any) -> AbstractContextManager[Callable[[], subprocess.Popen[bytes]]]:
        return nullcontext(partial(self.popen, *what, **named))

    def generate(self, load: GeneratorLoad, files: Mapping[str, str]) -> GeneratorsOutput:
        return GeneratorsOutput("", "one place only", 1, False)

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv)

    def shape(self, link_mbit: float | None, delay_ms: float = 0.0) -> None: ...

    def watch(self) -> Sampler:
        return Lasting(lambda: {"lab": [os.getpid()]}, self.counters)

    def counters(self) -> Mapping[str, int]:
        return {}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        return []

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        return []

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        return {}

    def processes(self, role: Role) -> list[int]:
        return []

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(list(argv), 1, "", "there is no container")

    def ask(self, role: Role, port: int, path: str) -> str:
        raise OSError("nothing listens")

    def renew(self) -> Renewed:
        """Its process is another from now on."""
        self.renewals += 1
        return Renewed(began=(100 + self.renewals,), ended=(99 + self.renewals,), took_s=0.1)

    def restarts(self) -> Mapping[str, int]:
        return {"proxy": self.restarted}

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        return []

    def unapplied(self) -> Sequence[str]:
        return self.limits

    def log_tail(self) -> str:
        return "last words"

    def gauges(self) -> Mapping[str, float]:
        return {}

    def leftovers(self) -> Leftovers:
        self.looks += 1
        return self.left.pop(0) if self.left else Leftovers()

    def recorder(self) -> FakeRecorder:
        return FakeRecorder(self.happened)

    def clock(self) -> ClockOffset:
        return ClockOffset(0.0, 0.0)

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        self.done.append(f"end {role} {how}")
        return how != "evict"

    def scale(self, role: Role, replicas: int) -> None:
        self.done.append(f"scale {role} {replicas}")

    def roll(self, role: Role) -> None:
        self.done.append(f"roll {role}")

    def freeze(self, role: Role, frozen: bool) -> None:
        self.done.append(f"freeze {role} {frozen}")

    def squeeze(self, role: Role, cpu: str | None) -> None:
        self.done.append(f"squeeze {role} {cpu}")

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        self.done += [f"apply {obj['kind']}" for obj in objects]


@dataclass
class FakeRecorder:
    """`happened`: its events, or the error that it ends with."""

    happened: Sequence[Event] | LabError = ()

    def __enter__(self) -> FakeRecorder:
        return self

    def __exit__(self, *_: object) -> None: ...

    def events(self) -> Sequence[Event]:
        if isinstance(self.happened, LabError):
            raise self.happened
        return self.happened

    def notes(self) -> Sequence[str]:
        return []


@dataclass
class FakeTarget:
    """Counts its bring-ups; `on_up` may raise or change the system of each."""

    name: str = "fake"
    bring_up_s: float = 2.0
    sides: Sequence[Side] = SIDES[:1]
    system: FakeSystem = field(default_factory=FakeSystem)
    on_up: Callable[[int], None] = lambda count: None
    alone: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variant → why no pair has it."""
    fixed: frozenset[str] = frozenset()
    """Variants of whose proxy no reload makes new workers."""
    ups: list[str] = field(default_factory=list)
    ups_at: list[Side] = field(default_factory=list[Side])
    ready_at: list[Side] = field(default_factory=list[Side])

    def check(self) -> None: ...
    def installed(self, generator: Generator) -> Installed | None:
        return Installed(generator.binary, "1")

    def brought(self, variants: Iterable[Variant]) -> Mapping[str, str]:
        return {}

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        return {point.name: self.system.endpoint(point) for point in points}

    def makes_new_workers(self, variant: Variant) -> bool:
        return variant.name not in self.fixed

    def unpaired(self, variant: Variant) -> str:
        return self.alone.get(variant.name, "")

    def enter(self, argv: Sequence[str]) -> int | None:
        return None

    def facts(self) -> Mapping[str, str]:
        return {"fake": "yes"}

    def close(self) -> None: ...
    def cpus(self) -> Mapping[Role, frozenset[int]]:
        return {}

    def generator_cpus(self) -> int | None:
        return os.cpu_count()

    @contextmanager
    def up(
        self,
        variant: Variant,
        changing: bool = False,
        side: Side = "left",
        meanwhile: Callable[[], object] = do_nothing,
    ) -> Iterator[FakeSystem]:
        self.ups.append(variant.name)
        self.ups_at.append(side)
        self.on_up(len(self.ups))
        meanwhile()
        self.ready_at.append(side)
        yield self.system


@dataclass
class Silent:
    """An observer that only remembers; `on_measured` may raise, as Ctrl-C does."""

    samples: list[Sample] = field(default_factory=list)
    failures: list[LabError] = field(default_factory=list)
    fresh: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    """Point and reasons of each fresh bring-up."""
    on_measured: Callable[[int], None] = lambda count: None

    def begins(self, slot: Slot, attempt: int) -> None: ...
    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None: ...
    def bringing_up_anew(self, slot: Slot, why: Sequence[str]) -> None:
        self.fresh.append((slot.point.name, list(why)))

    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None:
        self.samples.append(sample)
        self.on_measured(len(self.samples))

    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None:
        for sample in (own, base):
            self.measured(slot, sample, None, last)

    def failed(self, slot: Slot, error: LabError) -> None:
        self.failures.append(error)


def bench(
    blocks: int = 2,
    points: Sequence[LoadPoint] = (),
    generator: FakeGenerator | None = None,
    target: FakeTarget | None = None,
    observer: Silent | None = None,
    variants: Sequence[Variant] = (),
    shape: Shape | None = None,
) -> MeasuringLoop:
    """A loop over a new run in LAB_RUNS: `ingress-nginx` and its A/A twin, each alone, unless told otherwise."""
    wanted = list(variants) or [variant()]
    loads = list(points) or [point()]
    planned = plan_samples(list_arms([(v.name, v.baseline) for v in wanted], None), loads, blocks, 7, shape)
    used = FakeTarget() if target is None else target
    record = made_record(
        "run-1",
        planned,
        target=used.name,
        sweep="fake",
        variants={v.name: variant_record(v.name, baseline=v.baseline) for v in wanted},
        generators={p.name: {"name": "fake", "version": "1", "stand_in_for": None} for p in loads},
        facts={"fake": "yes"},
        git_commit=None,
    )
    store = RunStore.create(record, {})
    used_generator = generator or FakeGenerator()
    chosen = {p.name: ChosenGenerator(used_generator, used_generator.binary, "1", None) for p in loads}
    return MeasuringLoop(used, {v.name: v for v in wanted}, chosen, store, observer or Silent())


def going_on(loop: MeasuringLoop) -> MeasuringLoop:
    """Another lab that goes on with what the first one left."""
    return replace(loop, store=RunStore.open(loop.store.record.id), observer=Silent())
