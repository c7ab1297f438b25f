"""What stays in a network namespace: the kernel's tables parsed, the shell's answer parsed, and old workers counted."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest

from lab.targets.common import leftovers
from lab.targets.common.leftovers import (
    ANYWHERE,
    DETAIL_FROM,
    OrdinaryProcessCount,
    count_time_wait,
    list_accept_queues,
    parse_container,
    parse_counts,
    parse_listeners,
    parse_range,
    read_sockets,
)

SOCKSTAT = """\
sockets: used 217
TCP: inuse 5 orphan 1 tw 12985 alloc 7 mem 1
UDP: inuse 3 mem 0
FRAG: inuse 0 memory 0
TCP6: inuse 2
UDP6: inuse 1
"""
ROWS = """\
   0: 00000000:0050 00000000:0000 0A 00000000:0000000B 00:00000000 00000000     0        0 123 1 0000 100 0 0 10 0
   1: 0200400A:8000 0300400A:1F90 06 00000000:00000000 03:00001234 00000000     0        0 0 3 0000
   2: 0200400A:EE47 0300400A:1F90 06 00000000:00000000 03:00001234 00000000     0        0 0 3 0000
   3: 0200400A:0050 0100400A:9000 06 00000000:00000000 03:00001234 00000000     0        0 0 3 0000
   4: 0200400A:7FFF 0300400A:1F90 06 00000000:00000000 03:00001234 00000000     0        0 0 3 0000
   5: 0200400A:8001 0300400A:1F90 01 00000000:00000000 00:00000000 00000000     0        0 9 1 0000
"""
MAPPED = "   0: 0000000000000000FFFF00000200400A:8002 0000000000000000FFFF00000300400A:1F90 06 0:0 03:1 0 0 0 0 3 0"
SIX = "   1: 00000000000000000000000001000000:8002 000080FE000000000000000002000000:01BB 06 0:0 03:1 0 0 0 0 3 0"
TOLD = f"""\
{SOCKSTAT}@range
32768\t60999
@listening
{ROWS.splitlines()[0]}
@waiting
{ROWS}@processes
4 1 19292
"""


def test_the_kernels_tables_are_read() -> None:
    """Only TIME_WAIT with an ephemeral local port counts; IPv6 sockets to an IPv4 address are those of that address."""
    assert parse_counts(SOCKSTAT) == (7, 12_985)
    assert parse_counts(SOCKSTAT.replace("TCP6: inuse 2\n", "")) == (5, 12_985)
    rows = ROWS.splitlines()
    assert count_time_wait(rows, (32_768, 60_999)) == {"10.64.0.3:8080": 2}
    assert count_time_wait(rows, (1_024, 65_535)) == {"10.64.0.3:8080": 3}
    both = count_time_wait([MAPPED, SIX, *rows], (32_768, 60_999))
    assert both == {"10.64.0.3:8080": 3, "[fe80::2]:443": 1}
    assert parse_listeners(rows) == [11]
    assert parse_range("32768\t60999\n") == (32_768, 60_999)


def test_a_containers_answer() -> None:
    found = parse_container(TOLD)
    assert (found.processes, found.ending, found.memory_bytes) == (4, 1, 19_292 * 1024)
    assert found.sockets == leftovers.Sockets({"10.64.0.3:8080": 2}, 28_232, 6, 11)
    few = parse_container(TOLD.replace("tw 12985", "tw 7").replace(ROWS + "@processes", "@processes"))
    assert few.sockets.time_wait == {ANYWHERE: 7}
    none = parse_container(TOLD.replace("tw 12985", "tw 0").replace(ROWS + "@processes", "@processes"))
    assert none.sockets.time_wait == {}


def test_other_text_is_no_count_and_half_an_answer_none() -> None:
    for text in ("", "sockets: used 1\n", "TCP: inuse 5\n", "TCP: inuse x tw 1\n"):
        with pytest.raises(ValueError, match=r"no TCP line with tw|invalid literal"):
            parse_counts(text)
    for cut in ("", TOLD[:40], TOLD.replace("@waiting\n", ""), TOLD.replace("4 1 19292", "")):
        with pytest.raises(ValueError, match="not enough values to unpack"):
            parse_container(cut)


def test_old_workers_are_those_beyond_the_first_count_and_those_that_say_so() -> None:
    ordinary = OrdinaryProcessCount()
    assert [ordinary.beyond(3, 0), ordinary.beyond(5, 0), ordinary.beyond(2, 0), ordinary.beyond(3, 1)] == [0, 2, 0, 1]
    ordinary.forget()
    assert [ordinary.beyond(7, 2), ordinary.beyond(5, 0), ordinary.beyond(6, 0)] == [2, 0, 1]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server


def test_this_machines_own_kernel_is_read(listener: socket.socket) -> None:
    address = listener.getsockname()
    before = read_sockets()
    clients = [socket.create_connection(address) for _ in range(3)]
    try:
        during = read_sockets()
        assert during.queued - before.queued >= 3 and during.connections - before.connections >= 3
        assert sorted(list_accept_queues()).count(3) == sorted(parse_listeners(leftovers._read_rows())).count(3)  # pyright: ignore[reportPrivateUsage]
    finally:
        for client in clients:
            client.close()
    assert during.ports == before.ports > 1_000


def test_sockets_that_wait_are_told_apart_by_destination(listener: socket.socket) -> None:
    host, port = listener.getsockname()
    for _ in range(DETAIL_FROM + 20):
        with socket.create_connection((host, port)):
            accepted, _ = listener.accept()
        accepted.close()
    assert read_sockets().time_wait[f"{host}:{port}"] >= DETAIL_FROM
    for shell in filter(shutil.which, ("sh", "bash", "busybox")):
        argv = [shell, *(["sh"] if shell == "busybox" else []), "-c", f"SHELL_PID=$$\n{leftovers.SCRIPT}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        told = parse_container(done.stdout)
        assert told.sockets.time_wait[f"{host}:{port}"] >= DETAIL_FROM, done.stderr
        assert told.memory_bytes > 1_000_000 and told.processes >= 1 and str(os.getpid()) not in done.stderr
