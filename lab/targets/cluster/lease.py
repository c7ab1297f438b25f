"""The lease that lets one lab at a time measure on a cluster: a Lease in CLIENT_NAMESPACE, renewed by a thread.

Another lab takes the lease over when it has not been renewed. Because two machines' clocks differ, a lease that looks
stale is not believed at once: it must stay unchanged for longer than a running lab leaves it.
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
"""The seconds without renewal after which the lease is given up, while it is still ours.

So measuring stops before another lab may begin.
"""


def make_run_id() -> str:
    """Return the name of this process on a cluster: its start time and process number."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"


def format_holder(run: str) -> str:
    """Return the lease holder's name for people: user, machine and run."""
    return f"{getpass.getuser()}@{platform.node()} ({run})"


class Lease:
    """The lease on a cluster, which lets only one lab at a time measure there.

    The holder's name has user, machine and run, so two labs never have the same name.
    """

    def __init__(self, api: Api, holder: str) -> None:
        self._api, self._holder = api, holder
        self._lost = ""
        self._renewed = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lease, and start a thread that renews it.

        CLIENT_NAMESPACE must exist.

        Raises:
            UsageError: Another lab holds the lease; the message has the holder and the time when the lease expires.

        """
        watched_version = ""
        while self._thread is None:
            lease = self._read()
            if lease is not None and _holder(lease) not in ("", self._holder):
                spec, version = lease["spec"], lease["metadata"]["resourceVersion"]
                renewed = datetime.fromisoformat(spec.get("renewTime") or "1970-01-01T00:00:00Z")
                left_s = spec.get("leaseDurationSeconds", 0) - (datetime.now(UTC) - renewed).total_seconds()
                if left_s > 0 or watched_version not in ("", version):
                    left_s = max(left_s, RENEWED_S)
                    until = datetime.now(UTC) + timedelta(seconds=left_s)
                    fault = f"another lab measures there: {_holder(lease)}, until {until:%H:%M:%S} UTC unless it renews"
                    remedy = f"wait until it has ended; if it has crashed, try again in {left_s:.0f} s"
                    raise UsageError(f"{self._api.place}: lease {LEASE}", fault, remedy)
                if not watched_version:
                    watched_version = version
                    self._ended.wait(WATCHED_S)
                    continue
            with suppress(ConflictError):  # another lab was faster: look again
                self._write(lease)
                self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise LostError once the lease is lost: another lab may be measuring there now."""
        if not self._lost and self._age_s() > LOST_S:
            self._lost = f"not renewed for {LOST_S:.0f} s"  # the thread waits for an answer, or this machine slept
        if self._lost:
            remedy = "see that no other lab uses this cluster, then --resume"
            raise LostError(f"{self._api.place}: lease {LEASE}", f"lost: {self._lost}", remedy)

    def release(self) -> None:
        """Give the lease back if this lab still holds it; further calls do nothing.

        A failure raises no error, because the lease expires after DURATION_S seconds anyway.
        """
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join(5.0)
        self._thread = None
        with suppress(LabError):  # the cluster is gone or another lab holds the lease: nothing is left to give back
            lease = self._read()
            if lease is not None and _holder(lease) == self._holder:
                spec = lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._api.replace(lease | {"spec": spec})

    def _keep(self) -> None:
        """Renew the lease regularly until it is lost or given back; store why it was lost, for `check`.

        This runs in a thread and raises no error, because the user would see a thread's traceback.
        """
        while not self._lost and not self._ended.wait(RENEWED_S if self._age_s() < RENEWED_S else RETRIED_S):
            try:
                lease = self._read()
                if lease is None or _holder(lease) == self._holder:
                    self._write(lease)
                else:
                    self._lost = f"{_holder(lease) or 'nobody'} holds it now"
            except ConflictError:
                continue
            except LabError as error:
                if self._age_s() > LOST_S:
                    self._lost = f"not renewed for {LOST_S:.0f} s: {error.fault}"
            except Exception as error:  # noqa: BLE001
                self._lost = f"{type(error).__name__}: {error}"

    def _age_s(self) -> float:
        return _read_clock() - self._renewed

    def _read(self) -> Object | None:
        return self._api.get("coordination.k8s.io/v1", "Lease", LEASE, CLIENT_NAMESPACE)

    def _write(self, lease: Object | None) -> None:
        """Create or renew the lease; its age counts from the moment at which this call began.

        Args:
            lease: The lease as it was read; None if it does not exist.

        Raises:
            ConflictError: The lease has changed since it was read.

        """
        start_s, now = _read_clock(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": DURATION_S, "renewTime": now}
        if lease is None:
            metadata = {"name": LEASE, "namespace": CLIENT_NAMESPACE, "labels": {RUN_LABEL: "lease"}}
            created = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            self._api.create({**created, "spec": spec})
        else:
            self._api.replace(lease | {"spec": spec})
        self._renewed = start_s


def _read_clock() -> float:
    """Return the seconds of a clock that also counts while this machine sleeps, if the machine has such a clock.

    It is needed because another lab may begin while this machine sleeps.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _holder(lease: Object) -> str:
    return lease["spec"].get("holderIdentity") or ""
