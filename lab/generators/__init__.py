"""The load generators, such as k6 and wrk: the table of all of them, and the choice of one for a load.

Each generator has a module in this package. Files whose names begin with `_` are helpers of these modules.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from lab.base.errors import UsageError, refuse_unknown
from lab.generators import events, grpc, h2load, hey, k6, oha, websocket, wrk, wrk2
from lab.generators.base import Generator as Generator
from lab.model.endpoint import Endpoint
from lab.model.load import GeneratorLoad
from lab.model.pages import PAGES, UPLOAD_PATH
from lab.model.sweeps import LoadPoint

GENERATORS: Mapping[str, Generator] = {
    "events": events.Events(),
    "h2load": h2load.H2load(),
    "hey": hey.Hey(),
    "k6": k6.K6(),
    "k6-grpc": grpc.Grpc(),
    "k6-websocket": websocket.WebSocket(),
    "oha": oha.Oha(),
    "wrk": wrk.Wrk(),
    "wrk2": wrk2.Wrk2(),
}
"""The generators by their name in sweeps and tables."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A load generator as it is installed on this machine.

    Attributes:
        path: The path of the program.
        version: The version, as `Generator.version` reads it from the program's output. For k6 it includes the setting of
            Go's garbage collector (`1.8.1, GOGC=off`). For hey, which prints no version, it is `unknown`.

    """

    path: str
    version: str


VERSION_TIMEOUT_S = 10.0
"""The seconds that a program may take to print its version."""


def get_generator(name: str) -> Generator:
    """Return the load generator with this name, such as `k6` or `wrk`.

    Raises:
        UsageError: No generator has the name; the error suggests the nearest name.

    """
    refuse_unknown(name, GENERATORS, "generator", f"unknown generator '{name}'")
    return GENERATORS[name]


def find(tool: Generator) -> Installed | None:
    """Find the program of a load generator on PATH, and return its path and version; None if it is not installed.

    To read the version, the program is started. A program of the same name that is not the generator is ignored, and so is
    one that does not end within `VERSION_TIMEOUT_S`. The result is cached for each value of PATH.
    """
    return _find_on_path(tool.name, os.environ.get("PATH", os.defpath))


@cache
def _find_on_path(name: str, search_path: str) -> Installed | None:
    candidate = get_generator(name)
    for binary in (candidate.binary, *candidate.aliases):
        if (path := shutil.which(binary, path=search_path)) is None:
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
            return Installed(path, version)
    return None


def make_load(point: LoadPoint, endpoint: Endpoint, timed: bool = True) -> GeneratorLoad:
    """Convert a load point of a sweep (a load to measure at) to the load that is passed to a load generator.

    Args:
        point: The load point, with the rate, the connections, the duration and the page.
        endpoint: The address of the system, with its URL and host names.
        timed: Whether the generator has to report latencies.

    """
    page = point.page if point.traffic is None else ""
    if point.transfer == "upload":
        page = UPLOAD_PATH
    if point.every_s is not None:
        page = websocket.WEBSOCKET_PATH if point.websocket else events.EVENTS_PATH
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
        transfer=point.transfer,
        transfer_bytes=PAGES[point.page] if point.transfer is not None else 0,
        window_bits=point.window_bits,
        messages=point.messages,
    )


def refuse_point(used: Generator, point: LoadPoint, endpoint: Endpoint) -> str | None:
    """Return the reason why a load generator cannot make the load of a load point; None if it can.

    Args:
        used: The load generator.
        point: The load point of a sweep.
        endpoint: The address of the system under load.

    """
    return used.refusal(make_load(point, endpoint))


def choose(
    name: str, load: GeneratorLoad, installed: Callable[[Generator], Installed | None] = find
) -> tuple[Generator, Installed, str | None]:
    """Choose the load generator that makes a load: the requested one, or a stand-in for it.

    A stand-in is used if the requested generator is not installed and the load has an offered rate (open loop). For a
    load without a rate (closed loop) there is no stand-in, because two generators would make different loads. A load that
    the requested generator cannot make is always refused. So a sweep is valid or invalid on every machine alike.

    Args:
        name: The name of the requested generator.
        load: The load.
        installed: A function that finds a generator's program on this machine, or returns None.

    Returns:
        The generator, its program, and the reason why it replaces the requested generator (None if it is that one).

    Raises:
        UsageError: The requested generator cannot make the load, or neither it nor a suitable stand-in is installed.

    """
    requested = get_generator(name)
    if (refusal := _refuse_protocol(requested, load) or requested.refusal(load)) is not None:
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
    """Return the command line that makes a load, with the path of the generator's program in place of its name.

    Args:
        generator: The load generator.
        path: The path of its program.
        load: The load.

    """
    argv = generator.argv(load)
    index = argv.index(generator.binary)
    return [*argv[:index], path, *argv[index + 1 :]]
