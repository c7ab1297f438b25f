"""The lock by which only one process of the lab at a time measures on a cluster: a Kubernetes Lease that a thread renews.

The Lease is in the namespace CLIENT_NAMESPACE. If it is no longer renewed, another process of the lab takes it over. Because
the clocks of two machines differ, a Lease that seems to have expired is not taken over at once. It must first stay unchanged
for longer than the time between two renewals.
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
    """Return a new name for a run, made of the present time (UTC) and the process id: `20261130-211544-4711`."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"


def format_holder(run: str) -> str:
    """Return the lease holder's name in a form for people: `USER@MACHINE (RUN)`."""
    return f"{getpass.getuser()}@{platform.node()} ({run})"


class Lease:
    """The lock of a cluster, a Kubernetes Lease, by which only one process of the lab at a time measures there.

    The holder's name contains user, machine and run, so two processes never have the same name.
    """

    def __init__(self, api: Api, holder: str) -> None:
        self._api, self._holder = api, holder
        self._lost = ""
        self._renewed = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Acquire the lease, and start a thread that renews it; the namespace CLIENT_NAMESPACE must exist.

        Raises:
            UsageError: Another process of the lab holds the lease. The message names that process and the time at which
                its lease expires (at least 15 s from now).

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
        """Raise LostError if the lease is lost, because another process of the lab may then be measuring on the cluster."""
        if not self._lost and self._age_s() > LOST_S:
            self._lost = f"not renewed for {LOST_S:.0f} s"  # the thread waits for an answer, or this machine slept
        if self._lost:
            remedy = "see that no other lab uses this cluster, then --resume"
            raise LostError(f"{self._api.place}: lease {LEASE}", f"lost: {self._lost}", remedy)

    def release(self) -> None:
        """Give the lease back if this process still holds it; further calls do nothing.

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
        """Renew the lease regularly until it is lost or given back; this is the thread's body.

        The reason of a loss is stored for `check`. No error is raised, because the user would see the traceback of a
        thread.
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
        """Create or renew the lease on the cluster, and store the time of the renewal.

        That time is the beginning of this call, because the server may have written the lease at any moment since
        then.

        Args:
            lease: The lease as it was read before; None if it does not exist.

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
    """Return the time in seconds by a clock that goes on while this machine sleeps.

    Another process of the lab may take the lease during that sleep, so the time of the sleep must count. On a machine
    without such a clock, the monotonic clock is used.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _holder(lease: Object) -> str:
    return lease["spec"].get("holderIdentity") or ""
