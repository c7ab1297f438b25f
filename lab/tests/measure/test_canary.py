"""The canary as the load asks, and what a sample takes from it: expected bytes, TLS facts, refusals, the shaped link."""

from __future__ import annotations

import ctypes.util
import gzip
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pytest

from lab.measure import validity
from lab.measure.canary import decode_brotli, send_canary
from lab.measure.steady import NOTE_PROTOCOL_BY_CLIENT
from lab.model.endpoint import Endpoint, Response
from lab.model.load import GeneratorLoad
from lab.model.samples import Reason, Sample
from lab.model.sweeps import LoadPoint
from lab.tests.support.fakes import PAGE, FakeGenerator, FakeSystem, FakeTarget, bench, point

SMALL = gzip.compress(PAGE)
GZIP = {"content-encoding": "gzip", "transfer-encoding": "chunked"}
TLS = {"version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256", "key": "RSA 2048", "subject": "h"}


@dataclass
class Proxy(FakeSystem):
    """Answers with `answers` in turn (the last for ever); remembers what was asked and how the link was shaped."""

    answers: list[Response | OSError] = field(default_factory=list[Response | OSError])
    asked: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])
    links: list[float | None] = field(default_factory=list[float | None])
    found: Endpoint = field(default_factory=lambda: Endpoint("http://proxy", "h"))

    def endpoint(self, point: LoadPoint) -> Endpoint:
        return self.found

    def fetch(self, endpoint: Endpoint, path: str, timeout_s: float, headers: Any = None) -> Response:
        if "backend" in endpoint.base_url:
            return Response(200, PAGE, {})
        self.asked.append(headers or {})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    def shape(self, link_mbit: float | None, delay_ms: float = 0.0) -> None:
        self.links.append(link_mbit)


GOOD, BROKEN = Response(200, PAGE, {}, TLS), Response(502, b"bad gateway", {})
COMPRESSED = Response(200, SMALL, GZIP)


def at(**changes: Any) -> LoadPoint:
    return point().model_copy(update=changes)


def measured(system: Proxy, load: LoadPoint, generator: FakeGenerator | None = None) -> Sample:
    os.environ["LAB_RUNS"] += "x"  # a folder of its own; the fixture puts the variable back
    loop = bench(blocks=1, points=[load], target=FakeTarget(system=system), generator=generator)
    loop.measure()
    return loop.store.samples()[0]


def says(size: int) -> FakeGenerator:
    told = f'{{"requests": 1000, "duration_s": 1.0, "bytes": {size}, "errors": {{}}}}'
    return FakeGenerator(script=f"print({told!r})")


def test_a_compressed_answer_is_the_backends_once_decompressed() -> None:
    """It is asked for as the load asks, and the load is expected to weigh what the canary did."""
    system, asks = Proxy(answers=[COMPRESSED]), at(accept_encoding="gzip")
    found = send_canary(system, system.entry(), asks)
    assert (found.faults, found.body_bytes, found.chunked) == ([], len(SMALL), True)
    assert system.asked == [{"Accept-Encoding": "gzip"}]
    assert send_canary(Proxy(answers=[GOOD]), system.entry(), asks).body_bytes == len(PAGE)
    whole, light = measured(Proxy(answers=[GOOD]), at()), measured(Proxy(answers=[COMPRESSED]), asks, says(200_000))
    assert whole.valid and light.valid
    assert whole.tls == {name: TLS[name] for name in ("version", "cipher", "key")} and light.tls is None
    assert measured(Proxy(answers=[COMPRESSED]), asks, says(9_000_000)).reason is Reason.WRONG_SIZE
    changed = measured(Proxy(answers=[GOOD, COMPRESSED, GOOD]), asks)
    assert (changed.reason, "1024 bytes before" in changed.detail) == (Reason.WRONG_SIZE, True)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Response(200, SMALL[:-9], GZIP), "ends early"),
        (Response(200, b"\x1f\x8b" + bytes(20), GZIP), "Error -3"),
        (Response(200, gzip.compress(PAGE[1:]), GZIP), "not the backend's"),
        (Response(200, SMALL, {}), "not the backend's"),
        (Response(200, SMALL, {"content-encoding": "br"}), "'br' was not asked for"),
    ],
)
def test_wrong_bytes_are_a_fault_however_they_are_packed(answer: Response, fault: str) -> None:
    found = send_canary(Proxy(answers=[answer]), Endpoint("http://proxy", "h"), at(subject=("errors",)))
    assert fault in found.fault and not found.refusal
    sample = measured(Proxy(answers=[GOOD, answer, GOOD]), at(subject=("errors",)))
    assert sample.reason is Reason.WRONG_BACKEND


@pytest.mark.parametrize(("status", "refusal"), [(404, ""), (503, ""), (500, "status 500"), (200, "")])
def test_an_answer_that_the_load_expects_is_right_whatever_its_body(status: int, refusal: str) -> None:
    body = PAGE if status == 200 else b"sorry"
    proxy, load = Proxy(answers=[Response(status, body, {})]), at(answers=(200, 404, 503))
    found = send_canary(proxy, proxy.found, load)
    assert refusal in found.refusal and bool(found.refusal) == bool(refusal)
    assert refusal or found.body_bytes == len(body)
    proxy.answers = [Response(200, b"another", {})]
    assert "not the backend's" in send_canary(proxy, proxy.found, load).fault


def test_a_brotli_answer_is_the_backends_once_decompressed() -> None:
    """Of its four bytes the second and the third say how long it is, uncompressed."""
    if ctypes.util.find_library("brotlidec") is None:
        pytest.skip("libbrotlidec is not on this machine")
    assert decode_brotli(b"\x8b\x01\x80abcd\x03", 4) == b"abcd"
    with pytest.raises(ValueError, match="broken, or longer"):
        decode_brotli(b"\x8b\x01\x80abcd\x03", 3)
    with pytest.raises(ValueError, match="broken"):
        decode_brotli(b"abcd", 4)


def test_a_compressor_that_was_flushed_in_between_is_no_other_page() -> None:
    """The proxy flushes as bytes arrive from upstream: some bytes more or less, of what is compressed only."""
    packer = zlib.compressobj(wbits=31)
    flushed = packer.compress(PAGE[:512]) + packer.flush(zlib.Z_SYNC_FLUSH) + packer.compress(PAGE[512:])
    flushed += packer.flush()
    assert len(flushed) > len(SMALL)
    answers: list[Response | OSError] = [COMPRESSED, Response(200, flushed, GZIP)]
    assert measured(Proxy(answers=answers), at(accept_encoding="gzip"), says(200_000)).valid
    assert validity.compute_size_slack(at(accept_encoding="gzip"), 24_721) == pytest.approx(247.21)
    assert validity.compute_size_slack(at(), 24_721) == 0


def test_a_refusal_afterwards_is_an_outcome_only_where_errors_are_the_subject() -> None:
    """Ports that ran out hit the canary, too. Before the load it must be right in any case."""
    for after in (OSError("connection refused"), BROKEN):
        sample = measured(Proxy(answers=[GOOD, after, GOOD]), at(subject=("errors",)))
        assert sample.valid and any("refused afterwards, too" in note for note in sample.notes)
        assert measured(Proxy(answers=[GOOD, after, GOOD]), at()).reason is Reason.WRONG_BACKEND
    before = measured(Proxy(answers=[BROKEN, GOOD]), at(subject=("errors",)))
    assert (before.reason, before.requests) == (Reason.WRONG_BACKEND, None)


def test_the_link_is_shaped_for_the_load_alone() -> None:
    system = Proxy(answers=[GOOD])
    measured(system, at(link_mbit=20.0))
    assert system.links == [20.0, None] * 2, "the baseline and its A/A twin"


def test_what_is_known_only_once_a_system_is_up_can_still_be_refused() -> None:
    class Picky(FakeGenerator):
        def refusal(self, load: GeneratorLoad) -> str | None:
            return "one host only" if load.sni_per_host and load.hosts == ("a", "b") else None

    secure = Endpoint("https://a", "a", ("a", "b"), "passthrough")
    sample = measured(Proxy(answers=[GOOD], found=secure), at(), Picky())
    assert (sample.reason, "one host only" in sample.detail) == (Reason.GENERATOR_FAILED, True)
    assert measured(Proxy(answers=[GOOD]), at(), Picky()).valid


def test_resumption_that_nobody_can_count_is_said_and_must_be_counted_where_the_proxy_could() -> None:
    """A sweep asks all its variants for it: those without TLS, and where it ends behind the proxy, too."""
    behind = Endpoint("https://a", "a", ("a", "b"), "passthrough")
    for found, note in ((behind, "not counted"), (Endpoint("http://proxy", "h"), "no TLS on the way")):
        sample = measured(Proxy(answers=[GOOD], found=found), at(resumption=True))
        assert sample.valid and any(note in each for each in sample.notes)
    edge = measured(Proxy(answers=[GOOD], found=Endpoint("https://a", "a", ("a",), "edge")), at(resumption=True))
    assert edge.reason is Reason.RESUMPTION and "not counted" in edge.detail


def test_http2_is_what_the_proxy_says_or_its_client_alone() -> None:
    class Counting(Proxy):
        def counters(self) -> Mapping[str, int]:
            return {"proxy/requests_h2": 0}

    both, edge = FakeGenerator(protocols=frozenset({"h1", "h2"})), Endpoint("https://a", "a", ("a",), "edge")
    silent = measured(Proxy(answers=[GOOD], found=edge), at(protocol="h2", tls="edge"), both)
    assert silent.valid and NOTE_PROTOCOL_BY_CLIENT in silent.notes
    told = measured(Counting(answers=[GOOD], found=edge), at(protocol="h2", tls="edge"), both)
    assert told.reason is Reason.PROTOCOL and "0 of 1000 requests by HTTP/2" in told.detail
    assert NOTE_PROTOCOL_BY_CLIENT not in told.notes
    assert measured(Counting(answers=[GOOD], found=edge), at(tls="edge"), both).valid


OWN, OTHER = b"0" * 1024, b"1" * 1024


@pytest.mark.parametrize(
    ("behind", "fault"),
    [
        ({"backend-2": b"2" * 1024, "backend-1": OTHER, "backend-0": OWN}, ""),
        ({"backend-1": OTHER, "backend-0": b"x" * 1024}, "not the backend's"),
        ({"other-1": OTHER}, "not the backend's"),
        ({"": OTHER}, "not the backend's"),
    ],
)
def test_of_several_pods_the_one_that_was_asked_directly_must_answer_through_the_proxy(
    behind: Mapping[str, bytes], fault: str
) -> None:
    turn = cycle(behind.items())

    class Replicas(FakeSystem):
        def fetch(self, endpoint: Endpoint, path: str, timeout_s: float, headers: Any = None) -> Response:
            pod, body = ("backend-0", OWN) if "backend" in endpoint.base_url else next(turn)
            return Response(200, body, {"x-lab-backend": pod} if pod else {})

    seen = send_canary(Replicas(), Endpoint("http://proxy", "h"), point())
    assert fault in seen.refusal + seen.fault and bool(seen.faults) is bool(fault)
