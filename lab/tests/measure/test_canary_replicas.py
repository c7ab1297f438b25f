"""The canary where several backend pods, each with random pages of its own, stand behind the proxy."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from lab.measure.canary import canary
from lab.model.endpoint import Endpoint, Response
from lab.tests.support.fakes import FakeSystem, point


class Replicas(FakeSystem):
    """The backend asked directly is the first pod; the proxy goes round the ones given."""

    def __init__(self, behind: Mapping[str, bytes]) -> None:
        super().__init__()
        self.turn = cycle(behind.items())

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        pod, body = ("backend-0", b"0" * 1024) if "backend" in endpoint.base_url else next(self.turn)
        return Response(200, body, {"x-lab-backend": pod} if pod else {})


def found(behind: Mapping[str, bytes]) -> str:
    system = Replicas(behind)
    seen = canary(system, system.entry(), point())
    return seen.refusal or seen.fault


def test_the_same_pod_is_asked_twice() -> None:
    """Other pods' bytes differ and are no fault, as long as the pod that was asked directly answers through the proxy, too."""
    assert found({"backend-2": b"2" * 1024, "backend-1": b"1" * 1024, "backend-0": b"0" * 1024}) == ""


def test_wrong_bytes_of_the_same_pod_are_a_fault() -> None:
    """The name alone proves nothing."""
    assert "not the backend's" in found({"backend-1": b"1" * 1024, "backend-0": b"x" * 1024})


def test_a_proxy_that_never_goes_there_is_a_fault() -> None:
    """Neither pods of another backend nor one without a name are taken for ours."""
    assert "not the backend's" in found({"other-1": b"1" * 1024})
    assert "not the backend's" in found({"": b"1" * 1024})
