"""One lab per cluster: who has the lease, who may take it, how its loss is noticed. The API server is in memory."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from lab.base.errors import LostError, UsageError
from lab.targets.cluster import lease as module
from lab.targets.cluster.api import CLIENT_NAMESPACE, Api
from lab.targets.cluster.lease import LEASE, Lease
from lab.tests.support.cluster_fakes import FakeApi, Key
from lab.tests.support.waiting import until

KEY = ("Lease", CLIENT_NAMESPACE, LEASE)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RENEWED_S": 0.02, "RETRIED_S": 0.01, "WATCHED_S": 0.1, "LOST_S": 2.0}.items():
        monkeypatch.setattr(module, name, value)


def lease(fake: FakeApi, holder: str) -> Lease:
    return Lease(cast("Api", fake), holder)


def held(fake: FakeApi, holder: str, age_s: float) -> None:
    """As a lab left it that last renewed it `age_s` ago."""
    renewed = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": renewed}
    fake.put({"kind": "Lease", "metadata": {"name": LEASE, "namespace": CLIENT_NAMESPACE}, "spec": spec})


def spec(fake: FakeApi) -> dict[str, Any]:
    return fake.objects[KEY]["spec"]


def lost(mine: Lease) -> str:
    try:
        mine.check()
    except LostError as error:
        return error.fault
    return ""


def test_the_second_lab_is_refused_and_told_who_has_it() -> None:
    fake = FakeApi()
    first = lease(fake, "ann@a (1)")
    first.acquire()
    with pytest.raises(UsageError, match=r"another lab measures there: ann@a \(1\), until .* UTC unless.*\n.*crashed"):
        lease(fake, "bob@b (2)").acquire()
    first.release()
    second = lease(fake, "bob@b (2)")
    second.acquire()
    assert spec(fake)["holderIdentity"] == "bob@b (2)"
    second.release()
    fake = FakeApi()

    def faster(verb: str, key: Key) -> None:
        fake.before = lambda verb, key: None
        held(fake, "faster", 0)

    fake.before = faster
    with pytest.raises(UsageError, match="faster"):
        lease(fake, "slower").acquire()


def test_it_is_renewed_while_it_is_held_and_lost_to_another_holder() -> None:
    fake = FakeApi()
    mine = lease(fake, "ann")
    mine.acquire()
    failures = [LostError("context test", "timed out")] * 2

    def blip(verb: str, key: Key) -> None:
        if failures:
            raise failures.pop()

    fake.before = blip
    before = spec(fake)["renewTime"]
    until(lambda: spec(fake)["renewTime"] > before or bool(lost(mine)))
    assert not failures
    mine.check()
    mine.release()
    mine.release()
    assert spec(fake)["holderIdentity"] == ""
    fake = FakeApi()
    mine = lease(fake, "ann")
    mine.acquire()
    held(fake, "thief", 0)
    until(lambda: bool(lost(mine)))
    assert lost(mine) == "lost: thief holds it now"
    mine.release()
    assert spec(fake)["holderIdentity"] == "thief"


def test_a_stale_one_is_taken_over_but_not_where_only_clocks_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeApi()
    held(fake, "crashed", 70)
    mine = lease(fake, "ann")
    started = time.monotonic()
    mine.acquire()
    assert 0.1 <= time.monotonic() - started < 30 and spec(fake)["holderIdentity"] == "ann"
    mine.release()
    fake = FakeApi()
    held(fake, "living", 70)
    mine = lease(fake, "ann")

    def renewed_meanwhile(self: threading.Event, timeout: float | None = None) -> bool:
        held(fake, "living", 70)
        return False

    monkeypatch.setattr(threading.Event, "wait", renewed_meanwhile)
    with pytest.raises(UsageError, match="another lab measures there: living"):
        mine.acquire()


def test_the_time_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspended machine's lab has lost it when it wakes, before its thread has asked anybody."""
    slept_s = 0.0

    def since_boot(clock: int) -> float:
        assert clock == time.CLOCK_BOOTTIME
        return time.monotonic() + slept_s

    monkeypatch.setattr(module, "RENEWED_S", 60.0)
    monkeypatch.setattr(module.time, "clock_gettime", since_boot)
    mine = lease(FakeApi(), "ann")
    mine.acquire()
    assert not lost(mine)
    slept_s = 3600.0
    assert "not renewed" in lost(mine)
    mine.release()


@pytest.mark.parametrize("error", [LostError("context test", "does not answer: timed out"), ValueError("x")])
def test_a_server_that_is_gone_loses_it_in_time_without_a_traceback(
    error: Exception, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOST_S", 0.2)
    fake = FakeApi()
    mine = lease(fake, "ann")
    mine.acquire()

    def gone(verb: str, key: Key) -> None:
        raise error

    fake.before = gone
    until(lambda: bool(lost(mine)))
    assert "not renewed" in lost(mine) or "ValueError: x" in lost(mine)
    if isinstance(error, LostError):
        mine.release()  # says nothing
    assert capfd.readouterr().err == ""
