"""`lab.streaming`: the same numbers as the readers of whole outputs, however the file is cut, and refusals of what they refuse."""

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.generators import Load, OutputError, generator
from lab.generators._k6_log import requests_of
from lab.generators.oha import HEADER
from lab.histogram import Histogram
from lab.selfbench import worker
from lab.selfbench.rows import FORMATS, Format, write_rows
from lab.streaming import LONGEST_LINE, Reduced, reduce_k6_log, reduce_oha_rows, whole_lines

TESTDATA = Path(__file__).parent / "testdata" / "generators" / "k6"
LINE = "request {} 1000000 {} {:.3f} {:.3f} 0.400 {} {} backend-0 9003 17"
RATE = 50.0

cuts = st.integers(min_value=1, max_value=400)


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


def in_memory(log: str, made: int) -> tuple[int, int, int, list[int]]:
    """Requests, answers, wrong statuses and the latency's counts, by the reader of whole logs."""
    frame = requests_of(log, made, RATE)
    answered = (frame["error"] == "").to_numpy()
    status = frame["status"].to_numpy()[answered]
    latency = Histogram.of_values((frame["done_s"] - frame["due_s"]).to_numpy()[answered])
    wrong = int(np.count_nonzero((status < 200) | (status > 299)))
    return frame.height, int(answered.sum()), wrong, latency.counts.tolist()


def numbers(found: Reduced) -> tuple[int, int, int, list[int]]:
    return found.requests, found.answered, found.not_2xx, found.latency.counts.tolist()


@settings(max_examples=60)
@given(log=logs(), cut=cuts)
def test_a_log_cut_anywhere_is_the_whole_log(log: str, cut: int) -> None:
    """Every chunking gives what the reader of whole logs gives, to the last bucket."""
    made = log.count("request ")
    found = reduce_k6_log(io.BytesIO(log.encode()), made, RATE, chunk_bytes=cut)
    assert numbers(found) == in_memory(log, made)
    due = np.arange(made) * 1000 / RATE / 100
    assert found.begun.tolist() == np.bincount(due.astype(int)).tolist() and found.size_bytes is None


@pytest.mark.parametrize("name", ["logged", "logged-failing"])
@pytest.mark.parametrize("cut", [97, 4096, 2**21])
def test_a_real_log_is_reduced_to_what_its_reader_says(name: str, cut: int) -> None:
    """The recorded logs of k6, one of them of a server that fails."""
    log = (TESTDATA / f"{name}.err").read_text()
    made = sum(line.startswith("request ") for line in log.splitlines())
    assert numbers(reduce_k6_log(io.BytesIO(log.encode()), made, RATE, chunk_bytes=cut)) == in_memory(log, made)


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
    """oha's CSV: every chunking gives what its parser gives."""
    lines = [
        f"{start:.9f},0.000006527,0.000050832,0.1,{taken:.9f},{size},{status}" for start, taken, size, status in rows
    ]
    text = "\n".join([HEADER, *lines]) + "\n"
    found = reduce_oha_rows(io.BytesIO(text.encode()), chunk_bytes=cut)
    told = generator("oha").parse(text, "", 0, Load("http://h/", "", 1, 100.0, rate_rps=1.0))
    assert found.latency.counts.tolist() == told.latency.counts.tolist()
    assert (found.requests, found.not_2xx) == (told.requests, told.errors.get("status", 0))
    assert found.size_bytes == told.size_bytes
    begun = np.array([float(line.partition(",")[0]) for line in lines]) / 0.1
    assert found.begun.tolist() == np.bincount(begun.astype(int)).tolist()


@given(content=st.binary(max_size=300), cut=cuts)
def test_whole_lines_lose_nothing(content: bytes, cut: int) -> None:
    """Together they are the file, and each ends where a line does."""
    pieces = list(whole_lines(io.BytesIO(content + b"\n"), cut))
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
        reduce_k6_log(io.BytesIO(("\n".join(lines) + "\n").encode()), made, RATE, chunk_bytes=cut)


def test_a_log_without_its_end_is_refused() -> None:
    with pytest.raises(OutputError, match="the last one is cut"):
        reduce_k6_log(io.BytesIO("\n".join(LOG).encode()), 9, RATE)


def test_a_file_without_lines_is_not_held() -> None:
    """What never ends a line is no log, however long it goes on."""
    with pytest.raises(OutputError, match="bytes without an end"):
        list(whole_lines(io.BytesIO(b"x" * 4 * LONGEST_LINE), 4096))


def test_where_requests_were_dropped_all_counts_from_when_it_was_sent() -> None:
    """As the reader of whole logs does: when the others were due cannot be told."""
    found = reduce_k6_log(io.BytesIO(("\n".join(LOG) + "\n").encode()), 9, RATE, dropped=True)
    assert found.latency.total == 9 and found.latency.maximum_s == pytest.approx(0.001, abs=2e-6)


def test_an_empty_log_is_no_request() -> None:
    """Of a load that made none; a log that should have some is refused."""
    assert reduce_k6_log(io.BytesIO(b"k6 said nothing\n"), 0, RATE).requests == 0
    with pytest.raises(OutputError, match="got 0"):
        reduce_k6_log(io.BytesIO(b""), 1, RATE)


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
        reduce_oha_rows(io.BytesIO(text.encode()), chunk_bytes=cut)


@pytest.mark.parametrize("kind", FORMATS)
def test_both_ways_of_the_lab_agree_on_made_rows(kind: Format, tmp_path: Path) -> None:
    """The rows that selfbench times: streamed and whole are the same to the last bucket."""
    made = write_rows(kind, tmp_path / "rows", 5000)
    found = [way(kind, made.path, made.rate_rps) for way in (worker.streamed, worker.whole)]
    streamed, whole = (worker.told(one, 0.0) for one in found)
    assert streamed == whole and streamed["requests"] == 5000 and found[0].not_2xx > 0


@pytest.mark.parametrize("kind", FORMATS)
def test_memory_does_not_grow_with_the_rows(kind: Format, tmp_path: Path) -> None:
    """What Python holds at most is the same for ten times the rows (polars' own is in selfbench's table)."""
    peaks: list[int] = []
    for rows in (20_000, 200_000):
        made = write_rows(kind, tmp_path / "rows", rows)
        tracemalloc.start()
        with open(made.path, "rb") as source:
            if kind == "oha":
                reduce_oha_rows(source, chunk_bytes=2**17)
            else:
                reduce_k6_log(source, None, made.rate_rps, chunk_bytes=2**17)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]
