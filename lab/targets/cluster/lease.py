"""One lab per cluster: a Lease in CLIENT_NAMESPACE, renewed by a thread, taken over when nobody has renewed it.

Two machines' clocks differ, so that a lease looks stale is not believed at once: it must stand unchanged for longer than
a living lab leaves it.
"""

from __future__ import annotations

import getpass
import os
import platform
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from lab.base.errors import LabError, LostError, UsageError
from lab.targets.cluster.api import CLIENT_NAMESPACE, RUN_LABEL, Api, ConflictError, Object

LEASE = "ingress-lab"
DURATION_S = 60
RENEWED_S, RETRIED_S = 15.0, 1.0
WATCHED_S = 20.0
LOST_S = 45.0
"""Not renewed for so long, it is given up while it is still ours: measuring stops before another lab may begin."""


def run_id() -> str:
    """What this process is called on a cluster: its time and number."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"


def holder(run: str) -> str:
    """Who holds a lease, for people: user, machine and run."""
    return f"{getpass.getuser()}@{platform.node()} ({run})"


class Lease:
    """`holder` says who: user@machine and the run; two labs never have the same."""

    def __init__(self, api: Api, holder: str) -> None:
        self._api, self._holder = api, holder
        self._lost = ""
        self._renewed = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """UsageError: another lab holds it, who and until when. CLIENT_NAMESPACE must be there."""
        seen = ""
        while self._thread is None:
            found = self._get()
            if found is not None and _holder(found) not in ("", self._holder):
                spec, version = found["spec"], found["metadata"]["resourceVersion"]
                renewed = datetime.fromisoformat(spec.get("renewTime") or "1970-01-01T00:00:00Z")
                left_s = spec.get("leaseDurationSeconds", 0) - (datetime.now(UTC) - renewed).total_seconds()
                if left_s > 0 or seen not in ("", version):
                    left_s = max(left_s, RENEWED_S)
                    until = datetime.now(UTC) + timedelta(seconds=left_s)
                    fault = f"another lab measures there: {_holder(found)}, until {until:%H:%M:%S} UTC unless it renews"
                    remedy = f"wait until it has ended; if it has crashed, try again in {left_s:.0f} s"
                    raise UsageError(f"{self._api.place}: lease {LEASE}", fault, remedy)
                if not seen:
                    seen = version
                    self._ended.wait(WATCHED_S)
                    continue
            with suppress(ConflictError):  # somebody was faster: look again
                self._write(found)
                self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """LostError once it was lost: another lab may be measuring there now."""
        if not self._lost and self._age_s() > LOST_S:
            self._lost = f"not renewed for {LOST_S:.0f} s"  # the thread waits for an answer, or this machine slept
        if self._lost:
            remedy = "see that no other lab uses this cluster, then --resume"
            raise LostError(f"{self._api.place}: lease {LEASE}", f"lost: {self._lost}", remedy)

    def release(self) -> None:
        """Give it back, if it is still ours. Idempotent; never an error: it ends by itself in DURATION_S."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join(5.0)
        self._thread = None
        with suppress(LabError):  # the cluster is gone or somebody else has it: nothing of ours is left to give back
            found = self._get()
            if found is not None and _holder(found) == self._holder:
                spec = found["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._api.replace(found | {"spec": spec})

    def _keep(self) -> None:
        """The thread: renews until it is lost, and writes down why. Raises nothing: a traceback would reach the user."""
        while not self._lost and not self._ended.wait(RENEWED_S if self._age_s() < RENEWED_S else RETRIED_S):
            try:
                found = self._get()
                if found is None or _holder(found) == self._holder:
                    self._write(found)
                else:
                    self._lost = f"{_holder(found) or 'nobody'} holds it now"
            except ConflictError:
                continue
            except LabError as error:
                if self._age_s() > LOST_S:
                    self._lost = f"not renewed for {LOST_S:.0f} s: {error.fault}"
            except Exception as error:  # noqa: BLE001
                self._lost = f"{type(error).__name__}: {error}"

    def _age_s(self) -> float:
        return _now() - self._renewed

    def _get(self) -> Object | None:
        return self._api.get("coordination.k8s.io/v1", "Lease", LEASE, CLIENT_NAMESPACE)

    def _write(self, found: Object | None) -> None:
        """Ours from the moment at which this was begun. ConflictError when it has changed since `found`."""
        began, now = _now(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": DURATION_S, "renewTime": now}
        if found is None:
            metadata = {"name": LEASE, "namespace": CLIENT_NAMESPACE, "labels": {RUN_LABEL: "lease"}}
            made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            self._api.create({**made, "spec": spec})
        else:
            self._api.replace(found | {"spec": spec})
        self._renewed = began


def _now() -> float:
    """Seconds that go on while the machine sleeps, where it has such a clock: another lab may begin meanwhile."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _holder(lease: Object) -> str:
    return lease["spec"].get("holderIdentity") or ""
