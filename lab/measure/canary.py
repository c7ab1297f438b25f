"""The canary: a request through the proxy, whose answer must have exactly the bytes that the backend sends without the proxy.

It is sent before the load and, except for a load with a disruption, also after it. It requests the page of the load with the
load's content coding (with or without compression). So it also shows the size of an answer, and the properties of the TLS
connection that a client gets. The bytes are compared only if the answer's status is 200; a load may allow other statuses.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from lab.measure.validity import Fault
from lab.model.endpoint import Endpoint, Response
from lab.model.samples import TLS_FACTS, Reason
from lab.model.sweeps import LoadPoint
from lab.targets.base import System

FETCH_TIMEOUT_S = 10.0
"""The seconds after which a canary's request counts as unanswered."""
GZIP = 16 + zlib.MAX_WBITS
"""The `wbits` argument with which zlib expects a gzip header."""
POD_HEADER = "x-lab-backend"
"""The header in which the backend names its pod.

Every pod has different pages (random bytes that do not compress).
"""
MAX_TRIES = 64
"""The largest number of further requests until the expected pod answers.

If a proxy chooses among four pods at random, the probability that the expected one gets no request is one in a hundred million.
"""


@dataclass(frozen=True, slots=True)
class Canary:
    """The result of one canary: a request through the proxy whose answer must have exactly the bytes of the backend.

    The result is good if `refusal` and `fault` are both empty. Otherwise, it prevents the measurement before the load, and
    is a fault of the sample after it.

    Attributes:
        body_bytes: The size of the body as it was received, compressed or not.
        head_bytes: The size of the status line and the headers.
        chunked: Whether the body was sent in chunks.
        tls: Facts about the TLS connection (`TLS_FACTS`), name → value; None without TLS.
        refusal: A message if the proxy or the backend itself gave no answer, or one with a wrong status, or if the backend's
            answer has no body; otherwise empty. After a steady load that examines errors, it is no fault of the sample.
        fault: A message if the answer's bytes are wrong or cannot be decoded; otherwise empty.

    """

    body_bytes: int = 0
    head_bytes: int = 0
    chunked: bool = False
    tls: Mapping[str, str] | None = None
    refusal: str = ""
    fault: str = ""

    @property
    def faults(self) -> list[Fault]:
        """The faults that this canary (a checked request) has found, each as a reason and a sentence; empty if there are none."""
        return [(Reason.WRONG_BACKEND, message) for message in (self.refusal, self.fault) if message]


def send_canary(system: System, endpoint: Endpoint, point: LoadPoint) -> Canary:
    """Send one request through the proxy, and compare the answer with the one that the backend gives without the proxy.

    Both requests are sent here, each on a new connection. If the proxy balances over several pods, the request through
    the proxy is repeated until the expected pod has answered, at most `MAX_TRIES` times. The bytes of the answers are
    compared only if the proxy's answer has status 200.

    Args:
        system: The running system.
        endpoint: The address of the proxy.
        point: The load point, whose page and content coding are requested.

    """
    path, coding = f"/{point.page}", point.accept_encoding
    label = f"canary {endpoint.base_url}{path}"
    headers = {"Accept-Encoding": coding} if coding != "identity" else None
    try:
        expected = system.fetch(system.backend_endpoint(), path, FETCH_TIMEOUT_S)
        pod = expected.headers.get(POD_HEADER)
        response = system.fetch(endpoint, path, FETCH_TIMEOUT_S, headers)
        for _ in range(MAX_TRIES):  # until that very pod answers, where the proxy balances over several
            if response.status != 200 or response.headers.get(POD_HEADER) in (None, pod):
                break
            response = system.fetch(endpoint, path, FETCH_TIMEOUT_S, headers)
    except OSError as error:
        return Canary(refusal=f"{label}: {error}")
    if not point.answers and (expected.status != 200 or not expected.body):
        return Canary(refusal=f"the backend itself answers {expected.status} to {path}")
    if response.status not in (point.answers or (200,)):
        return Canary(
            refusal=f"{label}: status {response.status}, {len(response.body)} bytes that are not the backend's"
        )
    if response.status == 200:
        try:
            same = _decode_body(response, coding, len(expected.body)) == expected.body
        except (zlib.error, ValueError) as error:
            return Canary(fault=f"{label}: {error}")
        if not same:
            return Canary(fault=f"{label}: status 200, {len(response.body)} bytes that are not the backend's")
    return Canary(
        body_bytes=len(response.body),
        # `HTTP/1.1 200 OK`, a line for each header, an empty line
        head_bytes=19 + sum(len(name) + len(value) + 4 for name, value in response.headers.items()),
        chunked="chunked" in response.headers.get("transfer-encoding", ""),
        tls={name: response.tls[name] for name in TLS_FACTS if name in response.tls} or None,
    )


def _decode_body(response: Response, accepted: str, size: int) -> bytes:
    """Return the body of a response without its compression.

    Args:
        response: The response.
        accepted: The content coding that the request accepted: "identity", "gzip" or "br".
        size: The expected size of the uncompressed body in bytes.

    Raises:
        ValueError: The coding is neither gzip, which is always decoded, nor the accepted one. Or a gzip body ends early.
            Or brotli cannot be decoded: the body is broken or longer than `size`, or libbrotlidec is not installed.
        zlib.error: A gzip body is broken.

    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding == "identity":
        return response.body
    if encoding not in ("gzip", accepted):
        raise ValueError(f"content-encoding {encoding!r} was not asked for")
    if encoding == "br":
        return decode_brotli(response.body, size)
    reader = zlib.decompressobj(GZIP)
    body = reader.decompress(response.body)
    if not reader.eof:
        raise ValueError("its compressed body ends early")
    return body


def decode_brotli(body: bytes, size: int) -> bytes:
    """Return the uncompressed content of a body that is compressed by brotli.

    The system library libbrotlidec does it, since no Python package of the lab contains a decoder.

    Args:
        body: The compressed body.
        size: The largest size of the uncompressed body in bytes.

    Raises:
        ValueError: The body is broken or longer than `size`, or the library is not installed.

    """
    if (name := ctypes.util.find_library("brotlidec")) is None:
        raise ValueError(
            "it came in brotli, and libbrotlidec is not on this machine (Debian: apt-get install libbrotli1)"
        )
    decoded, length = ctypes.create_string_buffer(size), ctypes.c_size_t(size)
    if ctypes.CDLL(name).BrotliDecoderDecompress(ctypes.c_size_t(len(body)), body, ctypes.byref(length), decoded) != 1:
        raise ValueError("its compressed body is broken, or longer than the page")
    return decoded.raw[: length.value]
