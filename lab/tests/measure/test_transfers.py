"""Large transfers: their speed, what the link says beside h2load, and that no output that was tampered with counts."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest

from lab.base.errors import UsageError
from lab.generators import build_command, get_generator, make_load
from lab.measure import validity
from lab.measure.measurement import parse_report
from lab.model.endpoint import Endpoint
from lab.model.load import OutputError
from lab.model.metrics import METRICS
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.records.sweep_files import load_sweep
from lab.report.loads import describe_load
from lab.targets.common.process import GeneratorOutcome
from lab.tests.support.factories import make_point, make_sample
from lab.tests.support.recorded import case

NAMES = ("h2load/download", "h2load/download-h1", "h2load/upload")
MB = 1024 * 1024
KEYS = ("connections", "duration_s", "streams", "protocol", "transfer", "window_bits", "timeout_s")


def judged(name: str, stdout: str = "", stderr: str = "", link_bytes: int | None = None, **changes: Any) -> set[Reason]:
    """What speaks against a sample with this output, where everything else is as honest as the recorded one."""
    tool, honest_out, honest_err, status, load = case(name)
    result = tool.parse(honest_out, honest_err, status, load)
    point = LoadPoint(
        name="large", generator=tool.name, rate_rps=None, warmup_s=0.0, threads=1, page="1MB.bin",
        **{key: getattr(load, key) for key in KEYS},
    )  # fmt: skip
    way = "client/rx_bytes" if load.transfer == "download" else "client/tx_bytes"
    passed = round(1.04 * (result.requests + 0.5) * MB) if link_bytes is None else link_bytes
    seen = Observation(
        result.duration_s + 0.02, {}, pl.DataFrame(), {}, steal=0.0, others=0.0, clock_step_s=0.0,
        counters={"proxy/requests": result.requests, "proxy/InSegs": 99 * result.requests, way: passed},
    )  # fmt: skip
    ended = GeneratorOutcome(stdout or honest_out, stderr or honest_err, 0, 0.1, 0, hung=False)
    parsed, faults = parse_report(tool, load, ended)
    if parsed is None:
        return {reason for reason, _ in faults}
    arguments: dict[str, Any] = {"body_bytes": MB, "head_bytes": 200, "tls": "edge", "cpu_s": 0.1, "cpus": 1} | changes
    return {reason for reason, _ in validity.find_faults(point, parsed, seen, 0.3, **arguments)}


@pytest.mark.parametrize("name", NAMES)
def test_an_honest_report_of_transfers_is_valid(name: str) -> None:
    assert judged(name) == set()


@pytest.mark.parametrize("name", NAMES)
def test_the_link_is_believed_more_than_h2load(name: str) -> None:
    """It must have carried every complete body, and at most one more for each that was under way at the end."""
    tool, stdout, stderr, status, load = case(name)
    many, at_once = tool.parse(stdout, stderr, status, load).requests, load.connections * load.streams
    assert judged(name, link_bytes=many * MB) == set()
    assert judged(name, link_bytes=many * MB - 1) == {Reason.WRONG_SIZE}
    assert judged(name, link_bytes=round((many + at_once) * MB * 1.2)) == {Reason.WRONG_SIZE}
    assert judged(name, body_bytes=MB - 1) == {Reason.WRONG_SIZE}


def drop_row(stderr: str) -> str:
    return "".join(stderr.splitlines(keepends=True)[:-1])


def change_times(stderr: str, factor: float) -> str:
    return re.sub(r"\t([0-9]+)$", lambda match: f"\t{round(int(match[1]) * factor)}", stderr, flags=re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_no_output_of_transfers_that_was_tampered_with_counts(name: str) -> None:
    _, stdout, stderr, _, load = case(name)
    many, data = int(re.search(r"(\d+) done", stdout)[1]), int(re.search(r"\((\d+)\) data", stdout)[1])  # type: ignore[index]
    size = MB if load.transfer == "download" else 3
    fewer = stdout.replace(f"{many} done, {many} succeeded", f"{many - 2} done, {many - 2} succeeded")
    rows = {
        "bytes of a body more than can have come": (
            stdout.replace(f"({data}) data", f"({data + size * (1 + load.connections * load.streams)}) data"),
            stderr,
        ),
        "bytes of a body less": (stdout.replace(f"({data}) data", f"({many * size - 1}) data"), stderr),
        "a transfer more in the summary": (stdout.replace(f"{many} done", f"{many + 1} done"), stderr),
        "a transfer less in the log": (stdout, drop_row(stderr)),
        "faster in the log": (stdout, change_times(stderr, 0.9)),
        "slower in the log": (stdout, change_times(stderr, 1.1)),
        "a longer load": (re.sub(r"finished in ([0-9.]+)ms", "finished in 3000.00ms", stdout), stderr),
        "a shorter load": (re.sub(r"finished in ([0-9.]+)ms", "finished in 100.00ms", stdout), stderr),
        "another protocol": (re.sub(r"(Application protocol: ).*", r"\1spdy", stdout), stderr),
    }
    if load.connections * load.streams == 1:
        rows["two transfers less everywhere"] = (fewer, drop_row(drop_row(stderr)))
    for what, (changed_out, changed_err) in rows.items():
        assert (changed_out, changed_err) != (stdout, stderr), what
        assert judged(name, changed_out, changed_err) <= {Reason.GENERATOR_OUTPUT, Reason.GENERATOR_TIME}, what
        assert judged(name, changed_out, changed_err), what


def test_a_server_without_http2_is_named() -> None:
    """As F5's controller is shipped."""
    tool, stdout, _, status, load = case("h2load/download")
    printed = "No protocol negotiated. Fallback behaviour may be activated\nNo supported protocol was negotiated. Supported protocols were:\nh2"
    with pytest.raises(OutputError, match="the server does not speak h2"):
        tool.parse(stdout.replace("Application protocol: h2", printed), "", status, load)


def test_the_throughput_is_that_of_complete_transfers() -> None:
    """What was cut off at the end is in neither: two that take 0.5 s each are 2 a second, even if the load ended long after."""
    tool, stdout, stderr, status, load = case("h2load/download")
    result = tool.parse(stdout, stderr, status, load)
    taken_s = sum(int(line.split("\t")[2]) for line in stderr.splitlines()) * 1e-6
    assert result.achieved_rps == pytest.approx(result.requests / taken_s)
    sample = make_sample(point=make_point(rate_rps=None, page="1MB.bin", transfer="download"), achieved_rps=38.0)
    read = METRICS["throughput"].sample
    assert read is not None
    assert METRICS["throughput"].with_unit(read(sample)) == "39.8 MB/s"
    assert read(sample.model_copy(update={"point": make_point(page="1MB.bin")})) is None


def test_an_upload_goes_where_the_backend_takes_it_whole_and_windows_are_the_clients() -> None:
    h2load, endpoint = get_generator("h2load"), Endpoint("https://bench.lab.test:443", "bench.lab.test", tls="edge")
    point = make_point(generator="h2load", rate_rps=None, connections=1, page="10MB.bin", protocol="h2")
    upload = make_load(point.model_copy(update={"transfer": "upload", "window_bits": 16}), endpoint)
    argv = " ".join(build_command(h2load, "h2load", upload))
    assert argv.endswith("-w 16 -W 16 -d body --log-file=/dev/stderr https://bench.lab.test:443/upload")
    assert len(h2load.files(upload)["body"]) == upload.transfer_bytes == 10 * MB
    download = make_load(point.model_copy(update={"transfer": "download"}), endpoint)
    assert build_command(h2load, "h2load", download)[-1].endswith("/10MB.bin")
    assert h2load.files(download) == {} and "-w" not in build_command(h2load, "h2load", download)


def test_the_sweeps_have_both_protocols_with_and_without_a_delay() -> None:
    for name in ("http2-download", "http2-upload", "http2-download-quick", "http2-upload-quick", "http2-upload-1mb"):
        points = load_sweep(name)[1].load_points
        assert {(point.protocol, point.link_delay_ms) for point in points} >= {("h1", 20.0), ("h2", 20.0)}
        assert {point.transfer for point in points} == {name.split("-")[1]}
        assert all(point.why_alone == "a large transfer does not end with its time slice" for point in points)
    windows = {point.window_bits for point in load_sweep("http2-download")[1].load_points if point.link_delay_ms}
    assert windows == {None, 16, 20}
    (point,) = (each for each in load_sweep("http2-download")[1].load_points if each.name == "h2-64kb-20ms")
    said = "1 connections, closed loop, 4 s, 1MB.bin downloaded, TLS edge, HTTP/2, windows of 2^16 bytes, 20 ms more per round trip"
    assert describe_load(point) == said


GOOD = """
title = "t"
question = "q?"
blocks = 1

[[points]]
name = "a"
generator = "h2load"
connections = 1
duration_s = 5
protocol = "h2"
page = "10MB.bin"
transfer = "download"
"""


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("h2load", "wrk", "points.a.transfer: h2load makes transfers"),
        ("duration_s = 5", "duration_s = 5\nrate_rps = 5", "points.a.transfer: h2load makes transfers"),
        ("10MB.bin", "64kB.bin", "points.a.page: a transfer is of 1,048,576 bytes or more"),
        ('"h2"', '"h1"\nwindow_bits = 16', "points.a.window_bits: HTTP/1.1 has no windows of its own"),
        ('"h2"', '"h2"\nwindow_bits = 15', "window_bits"),
        ('"download"', '"downlaod"', "transfer"),
        ("duration_s = 5", "duration_s = 5\nlink_delay_ms = -1", "link_delay_ms"),
    ],
)
def test_a_transfer_that_is_none_is_refused(tmp_path: Any, was: str, becomes: str, says: str) -> None:
    (tmp_path / "s.toml").write_text(GOOD)
    assert load_sweep(str(tmp_path / "s.toml"))[1].load_points[0].transfer == "download"
    (tmp_path / "s.toml").write_text(GOOD.replace(was, becomes))
    with pytest.raises(UsageError, match=re.escape(says)):
        load_sweep(str(tmp_path / "s.toml"))
