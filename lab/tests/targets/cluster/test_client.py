"""The generator's pod, the tools of other pods and the way in: what is asked for there, and what is told when it is gone."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import LostError, MeasuringError
from lab.generators import get_generator
from lab.targets.cluster import client as module
from lab.targets.cluster import entrypoint
from lab.targets.cluster.client import ClientPod, describe_ephemeral_container, parse_times_seconds
from lab.tests.support.pods_here import ApiHere


@pytest.fixture
def api() -> ApiHere:
    return ApiHere()


@pytest.fixture
def pod(api: ApiHere) -> Iterator[ClientPod]:
    assert api.pod is not None
    shown: Any = api
    client = ClientPod(shown, api.pod)
    yield client
    client.close()


def test_a_generator_is_found_where_the_pod_has_it(pod: ClientPod, tmp_path: Path, monkeypatch: Any) -> None:
    found = pod.installed(get_generator("k6"))
    assert found is not None and found.path.endswith("/k6") and found.version[0].isdigit()
    pod.close()
    assert pod.installed(get_generator("k6")) is found
    impostor = tmp_path / "wrk"
    impostor.write_text("#!/bin/sh\necho 'wrk 4.1.0 [epoll] Copyright (C) 2012 Will Glozer'\n")
    impostor.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert pod.installed(get_generator("wrk2")) is None
    found = pod.installed(get_generator("wrk"))
    assert found is not None and found.path == str(impostor)


def test_names_resolve_for_a_while(pod: ClientPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side's lines go with it, also after a failure; a lab that lost its place leaves them to the next."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.0.0.9 old.lab.test # ingress-lab\n")
    monkeypatch.setattr(module, "HOSTS", str(hosts))
    ours = "127.0.0.1 localhost\n10.0.0.1 a.lab.test # ingress-lab\n10.0.0.2 b.lab.test # ingress-lab\n"
    theirs = "10.0.0.2 theirs.lab.test # ingress-lab\n"

    def end(fault: Exception) -> None:
        with pod.resolving({"a.lab.test": "10.0.0.1", "b.lab.test": "10.0.0.2"}):
            with pod.resolving({"a.rab.test": "10.0.0.3"}):
                assert hosts.read_text() == f"{ours}10.0.0.3 a.rab.test # ingress-lab\n"
            assert hosts.read_text() == ours
            if isinstance(fault, LostError):
                hosts.write_text(theirs)
            raise fault

    for fault, left in ((ZeroDivisionError(), "127.0.0.1 localhost\n"), (LostError("lease", "bob holds it"), theirs)):
        with pytest.raises(type(fault)):
            end(fault)
        assert hosts.read_text() == left
    monkeypatch.setattr(module, "HOSTS", str(tmp_path / "none" / "hosts"))
    with pytest.raises(MeasuringError, match="cannot be written"), pod.resolving({"a": "10.0.0.1"}):
        pass


def test_what_a_generator_used_is_its_own(pod: ClientPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = "t0=$(date +%s%N); while [ $(($(date +%s%N) - t0)) -lt 400000000 ]; do :; done"
    with (tmp_path / "out").open("wb") as out:
        wanted = {"busy": script, "idle": "sleep 0.4"}
        running = [pod.held(["sh", "-c", each], {}, out, out, name).go() for name, each in wanted.items()]
        assert [one.wait(20) for one in running] == [0, 0]
    busy, idle = pod.used_s(["busy"]), pod.used_s(["idle"])
    assert busy is not None and idle is not None and busy > 4 * idle
    assert pod.used_s(["never"]) is None and not list(tmp_path.glob("busy"))


def test_times_as_a_shell_tells_them() -> None:
    told = {"0m0.000000s": 0.0, "1m2.340000s": 62.34, "0m0,12s": 0.12}
    assert {text: parse_times_seconds(text) for text in told} == pytest.approx(told)
    with pytest.raises(ValueError, match="12.5"):
        parse_times_seconds("12.5")


def test_another_pod_of_the_same_name_is_not_the_same_place(api: ApiHere, pod: ClientPod) -> None:
    pod.check()
    assert api.pod is not None
    api.pod["metadata"]["uid"] = "another"
    with pytest.raises(LostError, match="pod ingress-lab-client/generator: is gone"):
        pod.check()


def test_tools_may_what_their_container_may() -> None:
    context = {"runAsUser": 101, "capabilities": {"drop": ["ALL"]}}
    log = {"name": "log", "mountPath": "/var/log/lab"}
    target = {"name": "proxy", "securityContext": context, "volumeMounts": [log, {**log, "subPath": "x"}]}
    made = describe_ephemeral_container("lab-tools-proxy", "lab/loadgen:1", target)
    assert made["securityContext"] == context and made["volumeMounts"] == [log]
    assert made["targetContainerName"] == "proxy" and made["image"] == "lab/loadgen:1"
    assert describe_ephemeral_container("t", "i", {"name": "proxy"})["securityContext"] == {}


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        (b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", 0),
        (b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00", errno.ECONNREFUSED),
        (b"\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00", errno.EHOSTUNREACH),
        (b"\x05\x04\x00\x03\x01x\x00\x00", errno.EHOSTUNREACH),
        (b"\x05\x09\x00\x01\x00\x00\x00\x00\x00\x00", errno.EIO),
    ],
)
def test_the_socks_server_is_asked_by_name_and_its_refusals_are_errors(reply: bytes, number: int) -> None:
    ours, theirs = socket.socketpair()
    asked = bytearray()

    def answer() -> None:
        with theirs:
            asked.extend(theirs.recv(3))
            theirs.sendall(b"\x05\x00")
            asked.extend(theirs.recv(64))
            theirs.sendall(reply + b"hello")

    thread = threading.Thread(target=answer)
    thread.start()
    with ours:
        ours.settimeout(5)
        if number == 0:
            entrypoint._ask_socks(ours, "web.ns", 8080)  # pyright: ignore[reportPrivateUsage]
            assert ours.recv(64) == b"hello"
        else:
            with pytest.raises(OSError, match=r"pod") as caught:
                entrypoint._ask_socks(ours, "web.ns", 8080)  # pyright: ignore[reportPrivateUsage]
            assert caught.value.errno == number
    thread.join(5)
    assert bytes(asked) == b"\x05\x01\x00\x05\x01\x00\x03\x06web.ns\x1f\x90"
