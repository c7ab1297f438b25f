"""The load generators: a table of them, one file each (what begins with `_` is shared), and which of them makes a load."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from lab.base.errors import UsageError, refuse_unknown
from lab.generators.base import Generator as Generator
from lab.generators.h2load import H2load
from lab.generators.hey import Hey
from lab.generators.k6 import K6
from lab.generators.oha import Oha
from lab.generators.wrk import Wrk
from lab.generators.wrk2 import Wrk2
from lab.model.endpoint import Endpoint
from lab.model.load import Load
from lab.model.sweeps import Point

GENERATORS: Mapping[str, Generator] = {
    "h2load": H2load(),
    "hey": Hey(),
    "k6": K6(),
    "oha": Oha(),
    "wrk": Wrk(),
    "wrk2": Wrk2(),
}
"""Name as in sweeps and tables → the generator."""


@dataclass(frozen=True, slots=True)
class Installed:
    """One generator as found on this machine: the run puts `path` in the place of `binary`, see `command`."""

    name: str
    path: str
    version: str


VERSION_TIMEOUT_S = 10.0


def generator(name: str) -> Generator:
    """One generator by name; UsageError with the nearest known name otherwise."""
    refuse_unknown(name, GENERATORS, "generator", f"unknown generator '{name}'")
    return GENERATORS[name]


def find(wanted: Generator) -> Installed | None:
    """Where a generator is installed, or None. Asks each program of that name for its version, once per PATH."""
    return _find(wanted.name, os.environ.get("PATH", os.defpath))


@cache
def _find(name: str, search_path: str) -> Installed | None:
    wanted = generator(name)
    for binary in (wanted.binary, *wanted.aliases):
        path = shutil.which(binary, path=search_path)
        if path is None:
            continue
        argv = [path, wanted.version_flag]
        try:
            # stdin closed and a deadline: a program that only shares the name may wait for input.
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=VERSION_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        version = wanted.version((done.stdout + done.stderr).decode(errors="replace"))
        if version is not None:
            return Installed(name, path, version)
    return None


def load_of(point: Point, endpoint: Endpoint, timed: bool = True) -> Load:
    """What the generator is asked for at this point on this system; `timed`: whether its latencies are wanted."""
    return Load(
        url=f"{endpoint.base_url}/{point.page}",
        host=endpoint.host,
        connections=point.connections,
        duration_s=point.duration_s,
        rate_rps=point.rate_rps,
        threads=point.threads,
        requests=point.requests,
        keepalive=point.keepalive,
        hosts=endpoint.hosts,
        sni_per_host=endpoint.tls == "passthrough" and len(endpoint.hosts) > 1,
        shards=tuple(replace(shard, url=f"{shard.url}/{point.page}") for shard in endpoint.shards),
        gzip=point.accept_encoding == "gzip",
        brotli=point.accept_encoding == "br",
        answers=point.answers,
        forwarded=point.forwarded,
        resumption=point.resumption,
        generators=point.generators,
        timeout_s=point.timeout_s,
        logged=point.disturbance is not None,
        timed=timed,
        protocol=point.protocol,
        streams=point.streams,
    )


def refusal_of(used: Generator, point: Point, endpoint: Endpoint) -> str | None:
    """Why a generator cannot make the load of a point on that system; None if it can."""
    return used.refusal(load_of(point, endpoint))


def choose(
    name: str, load: Load, installed: Callable[[Generator], Installed | None] = find
) -> tuple[Generator, Installed, str | None]:
    """The generator that makes `load`, as it is installed, and why another stands in for the one that was asked for (None if none does).

    Stand-ins take open-loop loads only: closed loops of different tools are not the same load. Raises
    UsageError when the load is beyond the generator asked for (whether it is installed or not, so that a
    sweep means the same everywhere), or when nothing on this machine fits.
    """
    wanted = generator(name)
    refusal = _spoken_refusal(wanted, load) or wanted.refusal(load)
    if refusal is not None:
        raise UsageError(f"generator {name}", refusal, "change the load, or name another generator")
    if (found := installed(wanted)) is not None:
        return wanted, found, None
    tried = [generator(other) for other in wanted.stand_ins] if load.rate_rps is not None else []
    for other in tried:
        refused = _spoken_refusal(other, load) or other.refusal(load)
        if refused is None and (found := installed(other)) is not None:
            from_when = "" if other.latency_from == wanted.latency_from else f", latency from when {other.latency_from}"
            return other, found, f"{name} is not installed: {other.name} stands in{from_when}"
    nor = f", and none of its stand-ins fits ({', '.join(other.name for other in tried)})" if tried else ""
    raise UsageError(f"generator {name}", f"`{wanted.binary}` is not on PATH{nor}", wanted.remedy)


def _spoken_refusal(wanted: Generator, load: Load) -> str | None:
    if load.protocol in wanted.protocols:
        return None
    able = [name for name, other in GENERATORS.items() if load.protocol in other.protocols]
    return f"{wanted.name} cannot be made to speak {load.protocol}: {' and '.join(able)} can"


def command(generator: Generator, path: str, load: Load) -> list[str]:
    """Its argv with the program that was found in the place of its name."""
    argv = generator.argv(load)
    place = argv.index(generator.binary)
    return [*argv[:place], path, *argv[place + 1 :]]
