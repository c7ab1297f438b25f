"""The sampler against processes whose use of the CPU is known."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab.targets.common import sampler
from lab.targets.common.sampler import Sampler, process_times

BURN = "import time; e = time.process_time() + 0.5\nwhile time.process_time() < e: pass"
BUSY = f"{BURN}\nprint('done', flush=True); time.sleep(60)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}]); print('done', flush=True); input()"


@contextmanager
def started(*argv: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until_done(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stdout.readline() == "done\n"


def test_cpu_seconds_are_those_the_process_used_after_it_has_ended_too() -> None:
    with started(sys.executable, "-c", BUSY) as busy:
        with Sampler(lambda: {"proxy": [busy.pid]}, interval_s=0.05) as watching:
            until_done(busy)
            time.sleep(0.15)
            busy.kill()
            busy.wait()
            assert process_times(busy.pid) is None
        seen = watching.observation()
    assert 0.3 < seen.usage["proxy"].cpu_s <= 0.65
    assert seen.usage["proxy"].rss_bytes > 1_000_000
    assert seen.rows["role"].unique().to_list() == ["proxy"]


@pytest.mark.parametrize("code", [BUSY, PARENT], ids=["itself", "a child that it waited for"])
def test_our_own_children_are_not_other_people(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU that a descendant of the lab burns is nobody else's; seen from a bystander it is, though it lived in no snapshot."""
    every = sampler.host_processes

    def of_this_test(proc: str) -> dict[int, sampler.HostProcess]:  # what ends elsewhere takes its CPU time with it
        found = every(proc)
        return {pid: each for pid, each in found.items() if sampler.is_descendant(pid, (os.getpid(),), found)}

    monkeypatch.setattr(sampler, "host_processes", of_this_test)
    monkeypatch.setenv(sampler.HOST_PROC, str(os.open("/proc", os.O_RDONLY)))
    with started("sleep", "60") as bystander, started(sys.executable, "-c", code) as ours:
        monkeypatch.setenv(sampler.OUTER_PID, str(bystander.pid))
        before_s = sampler.other_processes_s()
        until_done(ours)
        as_bystander_s = sampler.other_processes_s()
        monkeypatch.setenv(sampler.OUTER_PID, str(os.getpid()))
        as_lab_s = sampler.other_processes_s()
    assert before_s is not None and as_bystander_s is not None and as_lab_s is not None
    assert as_bystander_s - before_s > 0.4 and as_bystander_s - as_lab_s > 0.4


def test_a_thread_that_ends_takes_nothing_of_its_process_with_it() -> None:
    def burn() -> None:
        end_s = time.thread_time() + 0.02
        while time.thread_time() < end_s:
            pass

    with Sampler(lambda: {"lab": [os.getpid()]}, interval_s=0.01) as watching:
        began_s = time.process_time()
        for _ in range(20):
            thread = threading.Thread(target=burn)
            thread.start()
            thread.join()
        used_s = time.process_time() - began_s
    seen = watching.observation()
    assert used_s - 0.02 < seen.usage["lab"].cpu_s < used_s + 0.2
    assert seen.rows["cpu_s"].is_sorted()


def test_a_connection_is_counted_where_it_is_opened_and_where_it_is_accepted() -> None:
    """On loopback both ends are of one network: three segments to open it come in and go out. Each of COUNTED is told by its own name."""
    before = sampler.network_counters(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        server.accept()[0].close()
        after = sampler.network_counters(os.getpid())
    more = {name: after[name] - before[name] for _, name in sampler.COUNTERS}
    assert more["ActiveOpens"] >= 1 and more["PassiveOpens"] >= 1 and min(more["InSegs"], more["OutSegs"]) >= 3


def test_a_share_is_at_most_all_though_the_kernel_takes_waiting_back() -> None:
    """proc(5): iowait may fall between two looks; here by more than what was idle since."""
    start, end = (
        sampler.parse_cpus([f"cpu0 {user} 0 0 {idle} {iowait} 0 0 0 0 0"])
        for user, idle, iowait in ((100, 200, 50), (110, 202, 40))
    )
    (span,) = sampler.subtract_cpu_times(start, end).values()
    assert span.total_s == span.busy_s == pytest.approx(10 * sampler.TICK_S)


def test_the_busiest_are_named_and_the_labs_own_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, all of a name together; one that began meanwhile under an old number is not the old one."""

    def seen(cpu: dict[int, float], start_of_7: int = 1) -> dict[int, sampler.HostProcess]:
        parents = {1: 0, 2: 0, 3: 2, 4: 1, 5: 1, 6: 1, 7: 1, 10: 1, 11: 10}
        names = {4: "java", 5: "java", 6: "idle", 7: "new", 11: "nginx", 3: "kworker"}
        return {
            pid: sampler.HostProcess(parent, start_of_7 if pid == 7 else 1, names.get(pid, "init"), cpu.get(pid, 0.0))
            for pid, parent in parents.items()
        }

    looks = iter([seen({4: 1.0, 7: 0.0}), seen({3: 9.0, 4: 1.25, 5: 0.25, 6: 0.1, 7: 5.0, 11: 9.0}, start_of_7=2)])
    monkeypatch.setattr(sampler, "find_host_proc", lambda: ("/x", 10))
    monkeypatch.setattr(sampler, "host_processes", lambda _: next(looks))
    monkeypatch.setattr(sampler.time, "sleep", lambda _: None)
    found = sampler.find_busiest(0.5)
    assert list(found)[:2] == ["java", "idle"]
    assert found["java"] == pytest.approx(1.0) and found["idle"] == pytest.approx(0.2)
    assert "nginx" not in found and "kworker" not in found and "new" not in found
