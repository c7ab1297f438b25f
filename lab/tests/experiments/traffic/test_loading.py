"""The load itself: what k6's script asks of the backend's own configuration, and what the backend got of it."""

from __future__ import annotations

import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log1p
from pathlib import Path
from statistics import median

import polars as pl
import pytest

from lab import generators
from lab.experiments.traffic.reading import AccessLog, read_log
from lab.experiments.traffic.shaping import make_sweep, make_traffic
from lab.generators import build_command, find, get_generator
from lab.measure.validity import find_faults
from lab.model.endpoint import Endpoint
from lab.model.load import GeneratorLoad, GeneratorResult
from lab.model.sweeps import LoadPoint
from lab.model.traffic import FIXTURE, MAX_BYTES, METHODS, SERVED, Traffic
from lab.model.usage import USAGE_SCHEMA, Observation
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import load_variant
from lab.tests.support.access_logs import make_log
from lab.tests.support.waiting import until

LOGGED = "log_format got '$msec $host $request $status $body_bytes_sent'; access_log FOLDER/got.log got;"


@dataclass(frozen=True)
class Got:
    """A request as the backend logged it."""

    time_s: float
    host: str
    method: str
    path: str
    status: int
    size_bytes: int


@contextmanager
def backend(folder: Path) -> Iterator[tuple[int, Path]]:
    """Run the backend's nginx with the fixture's location; yield its port and its log."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = load_variant("direct", fixtures=(FIXTURE,)).manifests
    data = next(obj["data"] for obj in manifest if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] == "backend")
    assert next(obj for obj in manifest if obj["kind"] == "Deployment")["spec"]["replicas"] == 3
    for name in ("run", "conf", "pages"):
        (folder / name).mkdir()
    for name, text in data.items():
        (folder / "conf" / name).write_text(text.replace("/srv", str(folder)))
    with (folder / "pages" / SERVED).open("wb") as page:
        page.truncate(MAX_BYTES)
    port = free_port()
    conf = folder / "conf" / "nginx.conf"
    text = conf.read_text().replace("access_log off;", LOGGED.replace("FOLDER", str(folder)))
    conf.write_text(text.replace("listen 8080 reuseport", f"listen 127.0.0.1:{port}"))
    process = subprocess.Popen(["nginx", "-e", "stderr", "-c", str(conf), "-g", "daemon off;"])
    try:
        until(lambda: (folder / "run" / "nginx.pid").exists(), "nginx")
        yield port, folder / "got.log"
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def load_with_k6(load: GeneratorLoad, folder: Path) -> GeneratorResult:
    k6 = get_generator("k6")
    program = find(k6)
    if program is None:
        pytest.skip("k6 is not installed")
    assert k6.refusal(load) is None
    for name, text in k6.files(load).items():
        (folder / name).write_text(text)
    argv = build_command(k6, program.path, load)
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=load.duration_s + 60, check=False)
    return k6.parse(done.stdout, done.stderr, done.returncode, load)


def read_got(path: Path) -> list[Got]:
    fields = (line.split() for line in path.read_text().splitlines())
    return [
        Got(float(when), host, method, url.partition("?")[0], int(status), int(size))
        for when, host, method, url, _, status, size in fields
    ]


def load_of(point: LoadPoint, port: int) -> GeneratorLoad:
    hosts = tuple(f"h{number}.lab.test" for number in range(1, int(point.routes) + 1))
    return generators.make_load(point, Endpoint(f"http://127.0.0.1:{port}", hosts[0], hosts))


def sizes_of(log: AccessLog) -> list[int]:
    return [0 if line.method == "HEAD" else line.size_bytes for line in log.lines]


@pytest.mark.slow
def test_every_method_and_size_is_answered_with_as_many_bytes(tmp_path: Path) -> None:
    sizes = [0, 1, 2, 12, 13, 14, 15, 4096, 1_000_003]
    requests = tuple(f"1 {method} h1 p{index + 1} {size}" for index, size in enumerate(sizes) for method in METHODS)
    point = make_sweep(Traffic(requests=requests), 200).load_points[1].model_copy(update={"duration_s": 1.0})
    with backend(tmp_path / "backend") as (port, log):
        result = load_with_k6(load_of(point, port), tmp_path)
        got = read_got(log)
    assert result.errors == {} and result.dropped == 0
    assert {request.status for request in got} == {200}
    expected = {
        (method, f"/traffic/p{index + 1}", 0 if method == "HEAD" else size)
        for index, size in enumerate(sizes)
        for method in METHODS
    }
    assert {(request.method, request.path, request.size_bytes) for request in got} == expected
    assert len(got) == result.requests >= 200


@pytest.mark.slow
def test_an_answer_of_another_size_is_an_error(tmp_path: Path) -> None:
    traffic = Traffic(requests=("1 GET h1 p1 5000", "1 GET h1 p2 5"))
    point = make_sweep(traffic, 50).load_points[1].model_copy(update={"duration_s": 1.0})
    with backend(tmp_path / "backend") as (port, _):
        (tmp_path / "backend" / "pages" / SERVED).write_bytes(b"x" * (MAX_BYTES - 1))
        result = load_with_k6(load_of(point, port), tmp_path)
    assert set(result.errors) == {"other"} and result.errors["other"] in (25, 26)
    assert result.requests + result.errors["other"] in (50, 51)


@pytest.mark.measures
def test_a_load_has_the_shares_of_paths_and_sizes_and_the_rate_of_a_log_of_100_000_lines(tmp_path: Path) -> None:
    """As the backend counts it; and the sample passes every check of its numbers.

    The log has whole seconds, which spread requests evenly; arrivals at random have gaps that an even schedule does not have.
    """
    log = read_log("access.log", make_log(100_000))
    quantiles = [-log1p(-(number + 0.5) / 50) for number in range(50)]
    at_random = tuple(gap * 50 / sum(quantiles) for gap in quantiles)
    traffic = make_traffic(log, 0).model_copy(update={"gaps": at_random})
    assert traffic.log is not None and traffic.log.rate_rps == pytest.approx(300, rel=0.02)
    point = make_sweep(traffic, None).load_points[1].model_copy(update={"duration_s": 10.0})
    with backend(tmp_path / "backend") as (port, path):
        load = load_of(point, port)
        result = load_with_k6(load, tmp_path)
        got = read_got(path)
    count = len(got)
    assert count == result.requests and result.errors == {} and result.dropped == 0
    assert result.achieved_rps == pytest.approx(traffic.log.rate_rps, rel=0.01)
    assert count / (got[-1].time_s - got[0].time_s) == pytest.approx(traffic.log.rate_rps, rel=0.01)
    by_path = [number for _, number in Counter((line.host, line.path) for line in log.lines).most_common()]
    counted = Counter(request.path for request in got)
    for rank, number in enumerate(by_path, 1):
        share = number / len(log.lines)
        assert counted[f"/traffic/p{rank}"] / count == pytest.approx(share, rel=0.02, abs=3 / count)
    by_host = [number for _, number in Counter(line.host for line in log.lines).most_common()]
    for rank, number in enumerate(by_host, 1):
        assert sum(request.host == f"h{rank}.lab.test" for request in got) / count == pytest.approx(
            number / len(log.lines), rel=0.02
        )
    logged = sizes_of(log)
    assert sum(request.size_bytes for request in got) / count == pytest.approx(sum(logged) / len(logged), rel=0.02)
    for low, high in (
        (0, 1),
        (1, 300),
        (300, 1000),
        (1000, 3000),
        (3000, 10_000),
        (10_000, 30_000),
        (30_000, 1_000_000),
    ):
        share = sum(low <= size < high for size in logged) / len(logged)
        assert sum(low <= request.size_bytes < high for request in got) / count == pytest.approx(share, abs=0.02)
    gaps = [after.time_s - before.time_s for before, after in pairwise(got)]
    mean_s = sum(gaps) / len(gaps)
    # Of an even schedule the median is the mean. A busy machine delays some requests, which moves a median little.
    assert median(gaps) == pytest.approx(median(at_random) * mean_s, rel=0.25)
    observed = Observation(result.duration_s + 0.1, {}, pl.DataFrame(schema=USAGE_SCHEMA), {}, 0.0, None, {}, 0.0)
    mean_bytes = traffic.mean_bytes(result.requests)
    assert find_faults(point, result, observed, 0.5, mean_bytes, head_bytes=200) == []
    swapped = replace(result, size_bytes=round((result.size_bytes or 0) * 1.1))
    assert [reason for reason, _ in find_faults(point, swapped, observed, 0.5, mean_bytes, head_bytes=200)] == [
        "wrong-size"
    ]


def test_the_backend_of_other_loads_stays_as_it_is() -> None:
    plain, mixed = load_variant("ingress-nginx"), load_variant("ingress-nginx", fixtures=(FIXTURE,))
    changed = [f"{obj['kind']}/{obj['metadata']['name']}" for obj in mixed.manifests if obj not in plain.manifests]
    copies = [f"Ingress/traffic-bench-{number:04}" for number in range(1, 10)]
    assert sorted(changed) == sorted(["ConfigMap/backend", "Deployment/backend", *copies])
    assert (MANIFESTS / "fixtures" / FIXTURE).is_dir()
