"""`lab.generators.streaming`: the same numbers as the readers of whole outputs, however the file is cut, and refusals of what they refuse."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.disturbances.outage import Outage
from lab.generators import generator
from lab.generators import pieces as reading
from lab.generators._k6_log import requests_of
from lab.generators.loads import load_of
from lab.generators.oha import HEADER
from lab.generators.pieces import LONGEST_LINE, Pieces, Stream, of_bytes, whole_lines
from lab.generators.streaming import Output, Reduced, reduce_k6_log, reduce_oha_rows
from lab.model.events import EVENTS_SCHEMA
from lab.model.load import Load, OutputError, Result
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records.reparse import from_raw, reported
from lab.records.store import NOWHERE, RunStore
from lab.records.tables import (
    RAW,
    SMALL_LOG,
    SMALL_RAW,
    STDERR_MARK,
    FrameError,
    join_raw,
    pack_raw,
    raw_pieces,
    read_raw,
)
from lab.stats.histogram import Histogram
from lab.tests.support import disturbed
from lab.tests.support.committed import as_k6
from lab.tests.support.factories import make_point, make_sample
from lab.tests.support.fakes import bench
from lab.tests.support.made_rows import FORMATS, LOAD_S, Format, streamed_rows, write_rows
from lab.tests.support.recorded import CASES, case, told
from lab.tests.support.small import pack_log, pack_small

K6_CASES = [name for name in CASES if name.startswith("k6/logged")]
LINE = "request {} 1000000 {} {:.3f} {:.3f} 0.400 {} {} backend-0 9003 17"
RATE = 50.0

cuts = st.integers(min_value=1, max_value=400)


@pytest.fixture(autouse=True, scope="module")
def no_piece_is_too_small() -> Iterator[None]:
    """Small ones are gathered otherwise, and the cuts between them would not matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "LEAST_BYTES", 1)
        yield


def test_small_pieces_are_read_together() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "LEAST_BYTES", 10)
        assert list(whole_lines(of_bytes(b"12\n" * 9 + b"3\n", 2))) == [b"12\n" * 4, b"12\n" * 4, b"12\n3\n"]


@st.composite
def logs(draw: st.DrawFn) -> str:
    """k6's log of up to 40 requests in any order, with other lines between them, late ones and failed ones."""
    count = draw(st.integers(1, 40))
    lines: list[str] = []
    for number in draw(st.permutations(range(count))):
        sent = 5 + 20 * number + draw(st.integers(0, 900_000)) / 1000
        done = sent + draw(st.integers(0, 130_000_000)) / 1000
        kind = draw(st.sampled_from(["-", "-", "-", "timeout", "read"]))
        status = 0 if kind != "-" else draw(st.sampled_from([200, 204, 404, 503]))
        lines += draw(st.sampled_from([[], [], ["GoError: dial: i/o timeout"], ["", "é\x85\u2028"]]))
        lines.append(LINE.format(number, 1_000_000 + int(sent), sent, done, status, kind))
    return "\n".join(lines) + "\n"


def cut_into(text: str, size: int = 2**21) -> Pieces:
    return partial(of_bytes, text.encode(), size)


def in_memory(log: str, made: int) -> tuple[int, int, int, list[int]]:
    """Requests, answers, wrong statuses and the latency's counts, by the reader of all rows."""
    frame = requests_of(cut_into(log), made, RATE)
    answered = (frame["error"] == "").to_numpy()
    status = frame["status"].to_numpy()[answered]
    latency = Histogram.of_values((frame["done_s"] - frame["due_s"]).to_numpy()[answered])
    wrong = int(np.count_nonzero((status < 200) | (status > 299)))
    return frame.height, int(answered.sum()), wrong, latency.counts.tolist()


def numbers(found: Reduced) -> tuple[int, int, int, list[int]]:
    return found.requests, found.answered, found.not_2xx, found.latency.counts.tolist()


@pytest.mark.slow
@settings(max_examples=60)
@given(log=logs(), cut=cuts)
def test_a_log_cut_anywhere_is_the_whole_log(log: str, cut: int) -> None:
    """However it is cut, what the reader of all rows gives, to the last bucket; which does not depend on the cuts either."""
    made = log.count("request ")
    found = reduce_k6_log(cut_into(log, cut), made, RATE)
    assert numbers(found) == in_memory(log, made)
    frame = requests_of(cut_into(log, cut), made, RATE)
    assert frame.equals(requests_of(cut_into(log), made, RATE))
    assert found.ended_s == pytest.approx((frame["done_s"] - frame["due_s"][0]).to_numpy().max(), abs=1e-6)
    due = np.arange(made) * 1000 / RATE / 100
    assert found.begun.tolist() == np.bincount(due.astype(int)).tolist() and found.size_bytes is None


@pytest.mark.parametrize("name", K6_CASES)
@pytest.mark.parametrize("cut", [97, 4096, 2**21])
def test_a_real_log_is_reduced_to_what_its_reader_says(name: str, cut: int) -> None:
    """The recorded logs of k6, one of them of a server that fails."""
    _, _, log, _, _ = case(name)
    made = sum(line.startswith("request ") for line in log.splitlines())
    assert numbers(reduce_k6_log(cut_into(log, cut), made, RATE)) == in_memory(log, made)


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 130), st.integers(0, 10**6), st.sampled_from([200, 301, 503])),
        min_size=1,
        max_size=40,
    ),
    cut=cuts,
)
def test_rows_cut_anywhere_are_the_whole_rows(rows: list[tuple[float, float, int, int]], cut: int) -> None:
    """oha's CSV: however it is cut, what its parser gives. No request is sent before it is due."""
    lines = [
        f"{number + start:.9f},0.000006527,0.000050832,0.1,{taken:.9f},{size},{status}"
        for number, (start, taken, size, status) in enumerate(rows)
    ]
    text = "\n".join([HEADER, *lines]) + "\n"
    load = Load("http://h/", "", 1, 0.001, rate_rps=1.0)
    found, told = reduce_oha_rows(cut_into(text, cut)(), load), generator("oha").parse(text, "", 0, load)
    assert max(found.ended_s, load.duration_s) == told.duration_s
    assert found.latency.counts.tolist() == told.latency.counts.tolist()
    assert (found.requests, found.not_2xx) == (told.requests, told.errors.get("status", 0))
    assert found.size_bytes == told.size_bytes
    begun = np.array([float(line.partition(",")[0]) for line in lines]) / 0.1
    assert found.begun.tolist() == np.bincount(begun.astype(int)).tolist()


@given(content=st.binary(max_size=300), cut=cuts)
def test_whole_lines_lose_nothing(content: bytes, cut: int) -> None:
    """Together they are the file, and each ends where a line does."""
    pieces = list(whole_lines(of_bytes(content + b"\n", cut)))
    assert b"".join(pieces) == content + b"\n" and all(piece.endswith(b"\n") for piece in pieces)


LOG = [LINE.format(number, 1_000_000 + 20 * number, 5 + 20 * number, 6 + 20 * number, 200, "-") for number in range(9)]


@pytest.mark.parametrize(
    ("lines", "made", "says"),
    [
        ([*LOG[:4], *LOG[5:]], None, "number 4 is missing"),
        (LOG[1:], None, "number 0 is missing"),
        ([*LOG, LOG[3]], None, "there twice"),
        ([LOG[3], *LOG], None, "there twice"),
        (LOG, 10, "expected 10 requests in the log, numbered from 0: got 9"),
        ([*LOG, "request 9 1000000 1000200 205.0 206.000 0.4 200 - x"], 10, "expected a line of the log of requests"),
        (
            [*LOG, "request ９ 1000000 1000200 205.000 206.000 0.400 200 - x"],
            10,
            "expected a line of the log of requests",
        ),
    ],
)
@pytest.mark.parametrize("cut", [50, 2**21])
def test_a_faulty_log_is_refused(lines: list[str], made: int | None, says: str, cut: int) -> None:
    """A gap, a number twice, fewer than made, a line that is cut: whatever the chunks."""
    with pytest.raises(OutputError, match=says):
        reduce_k6_log(cut_into("\n".join(lines) + "\n", cut), made, RATE)


@pytest.mark.parametrize("cut", [50, 2**21])
@pytest.mark.parametrize(
    "line",
    [
        "request +9 1000000 1000200 205.000 206.000 0.400 200 - x",
        "request -0 1000000 1000200 205.000 206.000 0.400 200 - x",
        "request 9 1000000 1000200 205.0000 206.000 0.400 200 - x",
        "request 9 1000000 1000200 2e2.000 206.000 0.400 200 - x",
        "request 9 1000000 1000200 205.000 2.5e1 0.400 200 - x",
        "request 9 1000000 1000200 205.000 206.000 inf 200 - x",
        "request 9 1000000 1000200 205.000 206.000 0.400 2000 - x",
        "request 9 1000000 1000200 205.000 206.000 0.400 200 -",
        "request 9  1000000 1000200 205.000 206.000 0.400 200 - x",
        "request 9 99999999999999999999 1000200 205.000 206.000 0.400 200 - x",
        "request 9 1000000 10request 10 1000000 1000200 205.000 206.000 0.400 200 - x",
        "request ",
        "request \x01",
    ],
)
def test_a_line_that_is_none_is_refused(line: str, cut: int) -> None:
    """Also where a reader of numbers would take it: no line is left out, and none is read as another."""
    with pytest.raises(OutputError, match="expected (a line|lines) of the log of requests"):
        reduce_k6_log(cut_into("\n".join([*LOG, line, ""]), cut), 10, RATE)


@pytest.mark.parametrize(
    "other", ["request", "requests 9", "", "\x01", "\r", "a request 9 1 2", 'say "', "\xff\xfe \udcff"]
)
@pytest.mark.parametrize("cut", [50, 2**21])
def test_what_is_no_line_of_the_log_is_passed_over(other: str, cut: int) -> None:
    """k6's complaints, whatever bytes are in them; an answer may hold any, too."""
    lines = [line for each in LOG for line in (each + ' \x01 é\x85\u2028 "', other)]
    content = "\n".join([*lines, ""]).encode("utf-8", "surrogateescape")
    found = reduce_k6_log(partial(of_bytes, content, cut), 9, RATE)
    assert numbers(found) == numbers(reduce_k6_log(cut_into("\n".join([*LOG, ""])), 9, RATE))


def test_a_log_without_its_end_is_refused() -> None:
    with pytest.raises(OutputError, match="the last one is cut"):
        reduce_k6_log(cut_into("\n".join(LOG)), 9, RATE)


def test_a_file_without_lines_is_not_held() -> None:
    """What never ends a line is no log, however long it goes on."""
    with pytest.raises(OutputError, match="bytes without an end"):
        list(whole_lines(of_bytes(b"x" * 4 * LONGEST_LINE, 4096)))


def test_where_requests_were_dropped_all_counts_from_when_it_was_sent() -> None:
    """As the reader of all rows does: when the others were due cannot be told."""
    found = reduce_k6_log(cut_into("\n".join(LOG) + "\n"), 9, RATE, dropped=True)
    assert found.latency.total == 9 and found.latency.maximum_s == pytest.approx(0.001, abs=2e-6)


def test_an_empty_log_is_no_request() -> None:
    """Of a load that made none; a log that should have some is refused."""
    assert reduce_k6_log(cut_into("k6 said nothing\n"), 0, RATE).requests == 0
    assert requests_of(cut_into("k6 said nothing\n"), 0, RATE).is_empty()
    with pytest.raises(OutputError, match="got 0"):
        reduce_k6_log(cut_into(""), 1, RATE)


ROW = "0.01,0.1,0.1,0.1,0.2,1024,200"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing of the kind\n" + ROW + "\n",
        f"{HEADER}\n",
        f"{HEADER}\n{ROW}",
        f"{HEADER}\n{ROW}\n0.01,0.1,0.1\n",
        f"{HEADER}\n{ROW},1\n",
        f"{HEADER}\n{ROW}\nnan,0.1,0.1,0.1,0.2,1024,200\n",
        f"{HEADER}\n{ROW}\n\n{ROW}\n",
        f"{HEADER}\n{ROW}\none,0.1,0.1,0.1,0.2,1024,200\n",
        f"{HEADER}\n1e9,0.1,0.1,0.1,0.2,1024,200\n",
        f"{HEADER}\n-1,0.1,0.1,0.1,0.2,1024,200\n",
    ],
)
@pytest.mark.parametrize("cut", [40, 2**21])
def test_what_is_no_csv_of_oha_is_refused(text: str, cut: int) -> None:
    """No header, no row, a row cut or too long, no number, an impossible time."""
    with pytest.raises(OutputError):
        reduce_oha_rows(cut_into(text, cut)(), Load("http://h/", "", 1, 1.0, rate_rps=1.0))


@pytest.mark.parametrize("kind", FORMATS)
def test_both_ways_of_the_lab_agree_on_made_rows(kind: Format, tmp_path: Path) -> None:
    """Streamed and whole are the same to the last bucket."""
    made = write_rows(kind, tmp_path / "rows", 5000)
    streamed = streamed_rows(made)
    text = made.path.read_text()
    if kind == "k6":
        frame = requests_of(cut_into(text), 5000, made.rate_rps)
        taken_s = frame.filter(pl.col("error") == "").select(pl.col("done_s") - pl.col("due_s")).to_series()
        latency = Histogram.of_values(taken_s.to_numpy())
        answered, wrong = latency.total, frame.filter(pl.col("error") == "", pl.col("status") != 200).height
        since = frame["number"].to_numpy() * 1000 / made.rate_rps / 100
        assert streamed.ended_s == pytest.approx((frame["done_s"] - frame["due_s"][0]).to_numpy().max(), abs=1e-6)
    else:
        told = generator("oha").parse(text, "", 0, Load("http://h/", "", 1, LOAD_S, rate_rps=made.rate_rps))
        latency, answered, wrong = told.latency, told.requests, told.errors["status"]
        since = np.array([float(line.partition(",")[0]) for line in text.splitlines()[1:]]) / 0.1
        assert streamed.size_bytes == told.size_bytes
    assert (streamed.requests, streamed.answered, streamed.not_2xx) == (5000, answered, wrong) and wrong > 0
    assert streamed.latency.counts.tolist() == latency.counts.tolist()
    assert streamed.begun.tolist() == np.bincount(np.floor(since).astype(int)).tolist()


PEAK = """
import re, sys
from pathlib import Path
from lab.tests.support.made_rows import RowFile, streamed_rows
streamed_rows(RowFile(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])), 4 * 2**20)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="this kernel does not tell a process' peak memory")
@pytest.mark.parametrize("kind", FORMATS)
def test_the_process_itself_does_not_grow_with_the_rows(kind: Format, tmp_path: Path) -> None:
    """All that it holds, polars' own memory with it; in pieces of which both have more than are held at once."""
    peaks: list[int] = []
    for rows in (250_000, 10**6):
        made = write_rows(kind, tmp_path / "rows", rows)
        argv = [sys.executable, "-c", PEAK, kind, str(made.path), str(rows)]
        peaks.append(int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout))
    assert peaks[1] < 1.3 * peaks[0]


# -- stored samples ------------------------------------------------------------------------------------

STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
outputs = st.text(st.characters(codec="utf-8"), max_size=200)


PACKED = {RAW: pack_raw, SMALL_RAW: pack_small, SMALL_LOG: pack_log}


def stored(tmp_path: Path, raw: str, name: str = RAW) -> Path:
    path = tmp_path / name
    path.write_bytes(PACKED[name](raw))
    return path


@settings(max_examples=60)
@given(stdout=outputs, stderr=outputs, cut=st.integers(1, 60))
def test_both_streams_come_back_however_they_are_unpacked(
    stdout: str, stderr: str, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The mark between them may lie across pieces."""
    assume(STDERR_MARK not in f"{stdout}\n#lab\n")  # which no generator prints
    path = stored(tmp_path_factory.mktemp("raw"), join_raw(stdout + "\n#lab", stderr))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lab.records.tables._unpacked", lambda _: of_bytes(join_raw(stdout + "\n#lab", stderr).encode(), cut)
        )
        cut_up = [b"".join(raw_pieces(path, stream)).decode() for stream in STREAMS]
    assert cut_up == [stdout + "\n#lab", stderr]
    assert [b"".join(raw_pieces(path, stream)).decode() for stream in STREAMS] == cut_up


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("left", [0, 7, 1000, -1])
def test_a_file_that_is_cut_short_is_damaged(left: int, name: str, tmp_path: Path) -> None:
    """Nothing of it is taken for the whole: a CSV has no end mark."""
    text = "".join(f"{number * 7919 % 10007}\n" for number in range(50_000))
    path = stored(tmp_path, text, name)
    assert read_raw(path) == (text, "")
    assert b"".join(raw_pieces(path, "stdout")).decode() == text
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(FrameError):
        list(raw_pieces(path, "stdout"))
    path.write_bytes(b"no such thing")
    with pytest.raises(FrameError):
        list(raw_pieces(path, "stderr"))


@pytest.mark.parametrize("name", [name for name in CASES if "error" not in told(name)["parsed"]])
def test_a_stored_output_is_parsed_to_what_it_was_parsed_to(name: str, tmp_path: Path) -> None:
    """Of every generator, with rows or without: not one number is another."""
    tool, out, err, _, load = case(name)
    path = stored(tmp_path, join_raw(out, err))
    found = Output(tool, load, partial(raw_pieces, path))
    assert comparable(found.result()) == comparable(tool.parse(out, err, 0, load))
    if load.logged:
        assert found.requests().equals(tool.requests(out, err, load))


EMPTY = Histogram.empty()


def comparable(result: Result) -> tuple[Result, list[list[int]]]:
    """Histograms apart: two arrays are not simply the same or not."""
    counts = [each.counts.tolist() for each in (result.latency, result.service) if each]
    return replace(result, latency=EMPTY, service=None), counts


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    return bench().store


def kept(run: RunStore, raw: str, **fields: Any) -> Sample:
    """A sample that printed that, stored as one is."""
    sample = make_sample(**fields)
    run.write_sample(sample, raw, {}, pl.DataFrame(schema=USAGE_SCHEMA), pl.DataFrame(schema=EVENTS_SCHEMA))
    return sample


def kept_rows(run: RunStore, tmp_path: Path, rows: int, block: int = 1) -> tuple[Sample, Result]:
    """A sample of oha at a rate, and what its parser makes of the whole."""
    written = write_rows("oha", tmp_path / "rows", rows)
    text, point = written.path.read_text(), make_point(rate_rps=written.rate_rps, duration_s=LOAD_S)
    sample = kept(
        run, text, id=f"{block:04}", block=block, order=block, point=point, generator="oha", histogram="exact"
    )
    return sample, generator("oha").parse(text, "", 0, load_of(point, NOWHERE))


def test_a_runs_stored_rows_are_reduced_and_added_up(run: RunStore, tmp_path: Path) -> None:
    """By `--from-raw` and by notebooks: as the parser has them that reads them whole."""
    both = [kept_rows(run, tmp_path, rows, block) for block, rows in ((1, 3000), (2, 5000))]
    again = from_raw(run)
    for sample, (_, found) in zip(again.samples(), both, strict=True):
        histogram = again.histogram(sample)
        assert histogram is not None and (histogram.counts == found.latency.counts).all()
        assert {name: getattr(sample, name) for name in reported(found)} == reported(found)
    (first, _), (second, _) = both
    together = run.reduced(first).merge(run.reduced(second))
    assert together.requests == together.begun.sum() == 8000
    assert (together.latency.counts == both[0][1].latency.counts + both[1][1].latency.counts).all()


@pytest.mark.slow
def test_a_runs_rows_are_not_held_while_they_are_parsed_again(run: RunStore, tmp_path: Path) -> None:
    """What `--from-raw` holds at most is the same for five times the rows."""
    peaks: list[int] = []
    for block, rows in enumerate((100_000, 500_000), 1):
        sample, _ = kept_rows(run, tmp_path, rows, block)
        tracemalloc.start()
        run.result(sample)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_a_runs_stored_log_is_read_in_pieces(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its requests, by the lab's clock, and their counts; no reader of a whole output is asked."""
    made = disturbed.requests(50.0, 20.0, out=(5.0, 6.0))
    point = make_point("outage", disturbance=Outage(), rate_rps=50.0, keepalive=False)
    sample = kept(run, join_raw(*as_k6(made)), point=point, outcome={"failed": 0.0}, clock_offset_s=0.5)
    monkeypatch.setattr("lab.records.tables.read_raw", lambda _: pytest.fail("read whole"))
    found, counts = run.requests(sample), run.reduced(sample)
    assert found["status"].equals(made["status"]) and found["answer"].equals(made["answer"])
    assert found["due_s"][0] == pytest.approx(disturbed.ZERO_S - 0.5, abs=0.002)
    assert (counts.requests, counts.answered, counts.begun.tolist()) == (1000, 950, [5] * 200)
    assert from_raw(run).samples()[0].requests == 950


def test_a_sample_without_rows_and_a_damaged_one_are_told(run: RunStore, tmp_path: Path) -> None:
    none = kept(run, "said", generator="wrk")
    with pytest.raises(
        UsageError, match="(?s)raw.zst: holds no whole rows of requests: wrk prints no row.*oha at a rate"
    ):
        run.reduced(none)
    sample, _ = kept_rows(run, tmp_path, 2000, 2)
    path = run.folder / "samples" / sample.id / "raw.zst"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UsageError, match="(?s)raw.zst: cannot be read: .*restore it from a copy"):
        run.reduced(sample)
