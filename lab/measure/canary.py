"""The canary: one request through the proxy must bring the very bytes that the backend gives when asked directly.

It is asked before and after the load, as the load asks (compressed or not), and so also tells what an answer weighs
and which TLS a client gets.
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
from lab.model.sweeps import Point
from lab.targets.base import System

FETCH_TIMEOUT_S = 10.0
GZIP = 16 + zlib.MAX_WBITS
POD = "x-lab-backend"
"""The header by which the backend names its pod: each has pages of its own (random bytes that do not compress)."""
TRIES = 64
"""Of four pods one that is chosen by lot is missed so often once in a hundred million times."""


@dataclass(frozen=True, slots=True)
class Canary:
    """What one request found. `body_bytes` as they came, compressed where they were; `tls` None without TLS.

    `head_bytes`: of its status line and headers. `refusal`: it got no answer, or one with another status, which is an outcome where errors are the load's subject;
    `fault`: it got wrong bytes, which never is. Both empty: all is well.
    """

    body_bytes: int = 0
    head_bytes: int = 0
    chunked: bool = False
    tls: Mapping[str, str] | None = None
    refusal: str = ""
    fault: str = ""

    @property
    def faults(self) -> list[Fault]:
        return [(Reason.WRONG_BACKEND, said) for said in (self.refusal, self.fault) if said]


def canary(system: System, endpoint: Endpoint, point: Point) -> Canary:
    """Ask once, on a connection of its own."""
    path, coding = f"/{point.page}", point.accept_encoding
    place = f"canary {endpoint.base_url}{path}"
    headers = {"Accept-Encoding": coding} if coding != "identity" else None
    try:
        wanted = system.fetch(system.backend_endpoint(), path, FETCH_TIMEOUT_S)
        pod = wanted.headers.get(POD)
        got = system.fetch(endpoint, path, FETCH_TIMEOUT_S, headers)
        for _ in range(TRIES):  # until that very pod answers, where the proxy balances over several
            if got.status != 200 or got.headers.get(POD) in (None, pod):
                break
            got = system.fetch(endpoint, path, FETCH_TIMEOUT_S, headers)
    except OSError as error:
        return Canary(refusal=f"{place}: {error}")
    if not point.answers and (wanted.status != 200 or not wanted.body):
        return Canary(refusal=f"the backend itself answers {wanted.status} to {path}")
    if got.status not in (point.answers or (200,)):
        return Canary(refusal=f"{place}: status {got.status}, {len(got.body)} bytes that are not the backend's")
    if got.status == 200:
        try:
            same = _decoded(got, coding, len(wanted.body)) == wanted.body
        except (zlib.error, ValueError) as error:
            return Canary(fault=f"{place}: {error}")
        if not same:
            return Canary(fault=f"{place}: status 200, {len(got.body)} bytes that are not the backend's")
    return Canary(
        body_bytes=len(got.body),
        # `HTTP/1.1 200 OK`, a line for each header, an empty line
        head_bytes=19 + sum(len(name) + len(value) + 4 for name, value in got.headers.items()),
        chunked="chunked" in got.headers.get("transfer-encoding", ""),
        tls={name: got.tls[name] for name in TLS_FACTS if name in got.tls} or None,
    )


def _decoded(response: Response, asked: str, size: int) -> bytes:
    """The body as it was before compression, of so many bytes. ValueError for an encoding that was not asked for, zlib.error for a broken one."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding == "identity":
        return response.body
    if encoding not in ("gzip", asked):
        raise ValueError(f"content-encoding {encoding!r} was not asked for")
    if encoding == "br":
        return decoded_brotli(response.body, size)
    reader = zlib.decompressobj(GZIP)
    body = reader.decompress(response.body)
    if not reader.eof:
        raise ValueError("its compressed body ends early")
    return body


def decoded_brotli(body: bytes, size: int) -> bytes:
    """What it was before, of at most `size` bytes, by the library that nginx's module brings (libbrotlidec), as no wheel of the lab's has it.

    ValueError for what is no such body, or where there is no such library.
    """
    name = ctypes.util.find_library("brotlidec")
    if name is None:
        raise ValueError(
            "it came in brotli, and libbrotlidec is not on this machine (Debian: apt-get install libbrotli1)"
        )
    found, length = ctypes.create_string_buffer(size), ctypes.c_size_t(size)
    if ctypes.CDLL(name).BrotliDecoderDecompress(ctypes.c_size_t(len(body)), body, ctypes.byref(length), found) != 1:
        raise ValueError("its compressed body is broken, or longer than the page")
    return found.raw[: length.value]
