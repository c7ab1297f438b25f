"""The load generators: a module for each (a leading `_` marks helpers), their table, and the choice for a load."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from lab.base.errors import UsageError, refuse_unknown
from lab.generators.base import Generator as Generator
from lab.generators.events import EVENTS_PATH, Events
from lab.generators.h2load import H2load
from lab.generators.hey import Hey
from lab.generators.k6 import K6
from lab.generators.oha import Oha
from lab.generators.websocket import WEBSOCKET_PATH, WebSocket
from lab.generators.wrk import Wrk
from lab.generators.wrk2 import Wrk2
from lab.model.endpoint import Endpoint
from lab.model.load import GeneratorLoad
from lab.model.sweeps import LoadPoint

GENERATORS: Mapping[str, Generator] = {
    "events": Events(),
    "h2load": H2load(),
    "hey": Hey(),
    "k6": K6(),
    "k6-websocket": WebSocket(),
    "oha": Oha(),
    "wrk": Wrk(),
    "wrk2": Wrk2(),
}
"""The generators by their name in sweeps and tables."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A load generator as it is installed on this machine.

    Attributes:
        name: The name of the generator in sweeps and tables.
        path: The path of its program, which replaces the program's name in commands (`build_command`).
        version: The version that the program reports.

    """

    name: str
    path: str
    version: str


VERSION_TIMEOUT_S = 10.0
"""The seconds that a program may take to print its version."""


def get_generator(name: str) -> Generator:
    """Return a generator by name.

    Raises:
        UsageError: There is none; the error names the nearest one.

    """
    refuse_unknown(name, GENERATORS, "generator", f"unknown generator '{name}'")
    return GENERATORS[name]


def find(tool: Generator) -> Installed | None:
    """Return where a generator is installed, or None.

    Each program of that name is started once per PATH to read its version.
    """
    return _find_on_path(tool.name, os.environ.get("PATH", os.defpath))


@cache
def _find_on_path(name: str, search_path: str) -> Installed | None:
    candidate = get_generator(name)
    for binary in (candidate.binary, *candidate.aliases):
        path = shutil.which(binary, path=search_path)
        if path is None:
            continue
        argv = [path, candidate.version_flag]
        try:
            # stdin closed and a deadline: a program that only shares the name may wait for input.
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=VERSION_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        version = candidate.version((done.stdout + done.stderr).decode(errors="replace"))
        if version is not None:
            return Installed(name, path, version)
    return None


def make_load(point: LoadPoint, endpoint: Endpoint, timed: bool = True) -> GeneratorLoad:
    """Return the load of a point for the generator.

    Args:
        point: The load point.
        endpoint: The address of the system.
        timed: Whether latencies are needed.

    """
    page = point.page if point.traffic is None else ""
    if point.every_s is not None:
        page = WEBSOCKET_PATH if point.websocket else EVENTS_PATH
    return GeneratorLoad(
        url=f"{endpoint.base_url}/{page}",
        host=endpoint.host,
        connections=point.connections,
        duration_s=point.duration_s,
        rate_rps=point.rate_rps,
        threads=point.threads,
        requests=point.requests,
        keepalive=point.keepalive,
        hosts=endpoint.hosts,
        sni_per_host=endpoint.tls == "passthrough" and len(endpoint.hosts) > 1,
        shards=tuple(replace(shard, url=f"{shard.url}/{page}") for shard in endpoint.shards),
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
        traffic=point.traffic,
        every_s=point.every_s,
        event_bytes=point.event_bytes,
        held_s=point.held_s,
    )


def refuse_point(used: Generator, point: LoadPoint, endpoint: Endpoint) -> str | None:
    """Return why a generator cannot make the load of a point on that system; None if it can."""
    return used.refusal(make_load(point, endpoint))


def choose(
    name: str, load: GeneratorLoad, installed: Callable[[Generator], Installed | None] = find
) -> tuple[Generator, Installed, str | None]:
    """Choose the generator that makes a load.

    Stand-ins make open loops only: closed loops of different tools are not the same load. A load that the requested generator cannot make
    is refused whether it is installed or not, so that a sweep means the same everywhere.

    Args:
        name: The requested generator.
        load: The load.
        installed: The function that finds a generator on this machine.

    Returns:
        The generator, its program, and the reason why it stands in for the requested one (None if it is the requested one).

    Raises:
        UsageError: The load is beyond the requested generator, or nothing on this machine fits.

    """
    requested = get_generator(name)
    refusal = _refuse_protocol(requested, load) or requested.refusal(load)
    if refusal is not None:
        raise UsageError(f"generator {name}", refusal, "change the load, or name another generator")
    if (program := installed(requested)) is not None:
        return requested, program, None
    stand_ins = [get_generator(stand_in) for stand_in in requested.stand_ins] if load.rate_rps is not None else []
    for tool in stand_ins:
        refused = _refuse_protocol(tool, load) or tool.refusal(load)
        if refused is None and (program := installed(tool)) is not None:
            latency = "" if tool.latency_from == requested.latency_from else f", latency from when {tool.latency_from}"
            return tool, program, f"{name} is not installed: {tool.name} stands in{latency}"
    nor = f", and none of its stand-ins fits ({', '.join(tool.name for tool in stand_ins)})" if stand_ins else ""
    raise UsageError(f"generator {name}", f"`{requested.binary}` is not on PATH{nor}", requested.remedy)


def _refuse_protocol(candidate: Generator, load: GeneratorLoad) -> str | None:
    if load.protocol in candidate.protocols:
        return None
    able = [name for name, generator in GENERATORS.items() if load.protocol in generator.protocols]
    return f"{candidate.name} cannot be made to speak {load.protocol}: {' and '.join(able)} can"


def build_command(generator: Generator, path: str, load: GeneratorLoad) -> list[str]:
    """Return the generator's command with the path of its program instead of its name."""
    argv = generator.argv(load)
    index = argv.index(generator.binary)
    return [*argv[:index], path, *argv[index + 1 :]]
