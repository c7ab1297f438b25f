"""A log of requests as differences: the same bytes come back, whatever they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.records.request_log import decode_log, encode_log
from lab.records.tables import SMALL_LOG, SMALL_RAW, DamagedError, compress, pack_raw, raw_bytes, read_raw

LOG = """{"lab":1,"made":3}
#lab stderr
request 0 1795350073906 1795350073911 4.876 7.652 2.497 200 - backend-0 9000 -
request 2 1795350073906 1795350073928 21.206 21.913 0.448 503 - -
request 1 1795350073906 1795350073930 10.952 5010.952 0.000 0 timeout -
"""

whole = st.integers(0, 10**19).map(str)
ms = st.tuples(whole, st.sampled_from(["0", "000", "007", "52", "1234", "999"])).map(".".join)
rest = st.text(st.characters(codec="utf-8"), max_size=12)
requests = st.tuples(st.just("request"), whole, whole, whole, ms, ms, ms, rest).map(" ".join)
odd = ["", "=", "==", "=3", "0.077903", "07.077903", "=0 0 1 2 3 4 x", "request", "\r"]
others = st.sampled_from([*odd, "request 01 2 3 4.000 5.000 6.000 x"]) | rest
latencies = st.tuples(whole, st.sampled_from(["000000", "077903", "5", "1234567"])).map(".".join)
logs = st.lists(requests | latencies | others, max_size=12).map("\n".join)


@given(log=logs)
def test_every_log_comes_back(log: str) -> None:
    """Numbers that are not written as the lab writes them, lines that look like differences, an end without a line's end."""
    assert decode_log(encode_log(log.encode())) == log.encode()


def test_only_what_does_not_follow_is_left() -> None:
    """Number, schedule's beginning, wall clock, sent, what is neither waiting nor service, service; the last three in µs.

    A latency is told by the one before; a line that only looks like one stays.
    """
    assert encode_log(LOG.encode()).decode().splitlines()[2:] == [
        "=0 1795350073906 1 4876 279 2497 200 - backend-0 9000 -",
        "=1 0 1 16330 259 448 503 - -",
        "=-2 0 14 -10254 5000000 0 0 timeout -",
    ]
    log = b"LAB latency 3\n0.077903\n0.077900\n1.000000\n01.000000\n1.0\nLAB end\n"
    told = b"LAB latency 3\n=77903\n=-3\n=922100\n01.000000\n1.0\nLAB end\n"
    assert encode_log(log) == told
    assert decode_log(told) == log


def small(raw: str) -> bytes:
    return compress(raw_bytes(raw))


def small_log(raw: str) -> bytes:
    return compress(encode_log(raw_bytes(raw)))


def test_a_stored_log_is_read_as_any_output(tmp_path: Path) -> None:
    for name, content in ((SMALL_LOG, small_log(LOG)), (SMALL_RAW, small(LOG))):
        (tmp_path / name).write_bytes(content)
        assert read_raw(tmp_path / name) == tuple(LOG.split("\n#lab stderr\n"))
    line = "request {0} 7 {0} {0}.{1:03} {2}.000 0.{3:03} 200 - a\n"
    longer = LOG + "".join(line.format(n, n % 997, n + 1, n % 883) for n in range(3, 500))
    assert len(small_log(longer)) < 0.7 * len(small(longer))


@pytest.mark.parametrize("line", ["=0 0 1 2 3 x", "=0 0 1 2 3 4", "=0 0 x 2 3 4 200", "=1.5", "="])
def test_a_difference_that_is_none_is_damage(line: str, tmp_path: Path) -> None:
    path = tmp_path / SMALL_LOG
    path.write_bytes(small(f"{LOG}{line}\n"))
    with pytest.raises(DamagedError, match="a line is no difference of requests"):
        read_raw(path)


@pytest.mark.parametrize("name", [SMALL_RAW, SMALL_LOG, "raw.zst"])
@pytest.mark.parametrize("damage", ["cut", "empty", "more", "other"])
def test_output_that_is_not_whole_is_damage(name: str, damage: str, tmp_path: Path) -> None:
    whole = pack_raw(LOG) if name == "raw.zst" else small_log(LOG)
    damaged = {"cut": whole[:-3], "empty": b"", "more": whole + whole, "other": b"none of it"}
    (tmp_path / name).write_bytes(damaged[damage])
    with pytest.raises(DamagedError):
        read_raw(tmp_path / name)
