"""One shell for many questions: exact answers, nothing that a question does breaks it, and no wait without an end."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from lab.base.errors import LostError, MeasuringError, UsageError
from lab.systems.nginx import system as nginx
from lab.systems.renewing import Running
from lab.targets.cluster import shell as module
from lab.targets.cluster.api import Api
from lab.targets.cluster.shell import Shell
from lab.targets.cluster.system import list_processes
from lab.tests.support.pods_here import ApiHere
from lab.tests.support.waiting import until

NAP = 4_000_000 + os.getpid()
"""Seconds that no other test sleeps for, so that this one's sleeps are known."""
SHELLS = [name for name in ("dash", "bash", "busybox sh") if shutil.which(name.split()[0])]


def opened(api: ApiHere) -> Shell:
    return Shell(cast("Api", cast("Any", api)), "ns", "generator", "c")


@pytest.fixture(params=SHELLS)
def asked(request: pytest.FixtureRequest) -> Iterator[Shell]:
    """A shell on this machine, of each kind that it has."""
    shell = opened(ApiHere(request.param))
    yield shell
    shell.close()


def test_output_is_exact(asked: Shell) -> None:
    done = asked.run(["sh", "-c", "printf 'a\\n\\nb'; printf end >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "a\n\nb", "end")
    assert asked.run(["printf", "%s", 'it\'s "$HOME" `x` {y} µ\n\n']).stdout == 'it\'s "$HOME" `x` {y} µ\n\n'
    done = asked.run(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; head -c 1000000 /dev/zero | tr '\\0' y >&2"])
    assert (len(done.stdout), len(done.stderr)) == (3_000_000, 1_000_000)
    assert asked.script(f"# {'x' * 1_000_000}\nprintf ok").stdout == "ok"


def test_what_a_question_does_leaves_the_shell_alone(asked: Shell) -> None:
    pid = asked.pid
    assert asked.script("exit 7").returncode == 7
    assert asked.script("if").returncode != 0
    assert asked.run(["no-such-program"]).returncode == 127
    assert asked.run(["cat"]).stdout == ""
    assert asked.script("kill $$; cd /; x=1").returncode == 0
    assert asked.script('printf "%s" "${x-unset}"').stdout == "unset"
    assert asked.pid == pid


def test_a_containers_processes_are_those_that_do_not_end_by_themselves(asked: Shell) -> None:
    """nginx's cache loader does."""
    titles = (nginx.LOADER, "nginx: worker process")
    loader, worker = (subprocess.Popen(["bash", "-c", f"exec -a '{title}' sleep 60"]) for title in titles)
    try:
        until(lambda: all(psutil.Process(one.pid).name() == "sleep" for one in (loader, worker)))
        found = list_processes(asked)
        assert found[worker.pid] == Running(os.getpid(), "sleep") and loader.pid not in found and asked.pid not in found
    finally:
        for one in (loader, worker):
            one.kill()
            one.wait()


def test_a_question_that_is_late_is_given_up_and_a_broken_connection_is_made_again(asked: Shell) -> None:
    pid, began = asked.pid, time.monotonic()
    done = asked.run(["sh", "-c", "echo so far; sleep 5 | cat"], timeout_s=0.5)
    assert (done.returncode, done.stdout) == (124, "so far\n")
    assert done.stderr == "given up: it took longer than 0.5 s\n" and time.monotonic() - began < 5
    assert asked.script("echo well").stdout == "well\n" and asked.pid != pid
    psutil.Process(asked.pid).kill()
    assert asked.run(["echo", "back"]).stdout == "back\n"
    with pytest.raises(MeasuringError, match="pod ns/generator: container c does not answer"):
        asked.script("kill -9 $$")


def test_a_pod_that_is_gone_stops_the_run() -> None:
    api = ApiHere()
    shell = opened(api)
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    for pod, words in (
        (None, "is gone"),
        ({"metadata": {}, "status": evicted}, "no longer runs: Evicted: The node was low"),
        ({"metadata": {"deletionTimestamp": "now"}, "status": {"phase": "Running"}}, "being deleted"),
    ):
        psutil.Process(shell.pid).kill()
        api.pod = pod
        with pytest.raises(LostError, match=words):
            shell.run(["true"])
        api.pod = ApiHere().pod
    shell.close()


def test_a_container_that_never_answers_or_has_no_kubectl_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.2)
    monkeypatch.setattr(module, "ENDING_S", 0.2)
    with pytest.raises(MeasuringError, match="no answer within 0.2 s"):
        opened(ApiHere("sleep 60;:")).run(["true"])
    api = ApiHere()
    api.kubectl = ("/nowhere/kubectl",)
    with pytest.raises(UsageError, match=r"kubectl is not on PATH\n  start the lab by scripts/shell"):
        opened(api).run(["true"])


def test_a_process_gets_its_files_and_gives_its_status(tmp_path: Path) -> None:
    shell = opened(ApiHere("dash" if shutil.which("dash") else "sh"))
    with (tmp_path / "out").open("w+b") as out, (tmp_path / "err").open("w+b") as err:
        process = shell.held(
            ["sh", "-c", "wc -c <big; pwd; echo no >&2; exit 5"], {"big": "x" * 300_000}, out, err
        ).go()
        assert process.wait(20) == 5
    size, folder = (tmp_path / "out").read_text().split()
    assert size == "300000" and not Path(folder).exists()
    assert (tmp_path / "err").read_text() == "no\n"


def test_a_process_ends_with_its_connection() -> None:
    shell = opened(ApiHere("dash" if shutil.which("dash") else "sh"))
    script = f"sleep {NAP} & sh -c 'sleep {NAP}; sleep {NAP}'"
    process = shell.held(["sh", "-c", script], {"a": ""}).go()
    assert _sleeping(2)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(10)
    assert _sleeping(0)
    assert shell.held(["sh", "-c", f"sleep {NAP} & exit 0"]).go().wait(10) == 0
    assert _sleeping(0)


def test_what_is_held_begins_when_it_is_let_go(tmp_path: Path) -> None:
    shell = opened(ApiHere("dash" if shutil.which("dash") else "sh"))
    argv = ["touch", str(tmp_path / "began")]
    with shell.held(argv, {"a": ""}) as dropped:
        time.sleep(0.3)  # it would have begun by then
    assert dropped.process.returncode is not None and not list(tmp_path.iterdir())
    with shell.held(argv, {"a": ""}) as waiting:
        process = waiting.go()
    assert process.wait(20) == 0 and list(tmp_path.iterdir())


def _sleeping(count: int) -> bool:
    """So many of this test's sleeps run, within five seconds."""

    def found() -> bool:
        said = subprocess.run(["pgrep", "-cxf", f"sleep {NAP}"], capture_output=True, text=True, check=False).stdout
        return int(said or 0) == count

    until(found)
    return True
