"""The backend of a verification: it records every request as the bytes that came, and answers as the query asks.

    python3 echo.py CONTROL PORT[s]…      each PORT stands for a Service; with an `s` it speaks TLS (tls.crt and tls.key beside this file)
    GET :CONTROL/take                     the requests since the last take, as JSON, once none is being received any more

It is a program of its own, in a container, and uses only Python's standard library. `?lab=NAME` in a target chooses an answer of
`answer_of`; any other request gets the same page. A path that begins with /lab-auth is an authentication service: 200 with an
Authorization or Cookie header, else 401.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

PAGE = b"The quick brown fox jumps over the lazy dog. " * 45
"""The page: compressible, longer than the shortest body that any proxy compresses."""
PROBED = {b"/1kB.bin": 1024, b"/healthz": 0}
"""The paths that are not recorded: the lab asks for them to see whether the system serves."""
COMMON = "Server: lab-echo\r\nX-Powered-By: lab\r\nLast-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\nETag: \"lab\"\r\nX-Lab-Echo: 1\r\n"
IN_PROGRESS_S = 0.5

records: list[dict[str, Any]] = []
receiving = 0


def answer_of(name: str, host: str) -> tuple[str, str, bytes, str]:
    """Return (status line, further headers, body, framing) of the answer that a query asks for."""
    match name:
        case "redirect":
            return "302 Found", f"Location: http://{host}/lab-elsewhere\r\n", b"", "length"
        case "relative":
            return "301 Moved Permanently", "Location: /lab-elsewhere\r\n", b"", "length"
        case "cookie":
            return "200 OK", "Set-Cookie: a=1; Path=/; HttpOnly\r\nSet-Cookie: b=2; Domain=lab.test\r\n", PAGE, "length"
        case "trailers":
            return "200 OK", "Trailer: X-Lab-Sum\r\n", PAGE, "trailers"
        case "chunked":
            return "200 OK", "", PAGE, "chunked"
        case "close":
            return "200 OK", "Connection: close\r\n", PAGE, "close"
        case "large-header":
            return "200 OK", f"X-Lab-Large: {'a' * 6000}\r\n", PAGE, "length"
        case "security":
            headers = "Strict-Transport-Security: max-age=60\r\nX-Frame-Options: DENY\r\nX_Lab_Underscore: 1\r\n"
            return "200 OK", headers, PAGE, "length"
        case "204":
            return "204 No Content", "", b"", "none"
        case "404":
            return "404 Not Found", "", b"backend has no such page", "length"
        case "503":
            return "503 Service Unavailable", "Retry-After: 7\r\n", b"backend is busy", "length"
        case _:
            return "200 OK", "", PAGE, "length"


async def read_body(reader: asyncio.StreamReader, headers: list[tuple[str, str]]) -> tuple[bytes, list[tuple[str, str]]]:
    """Return the body and the trailers of a request."""
    values = {name.lower(): value for name, value in headers}
    if "chunked" in values.get("transfer-encoding", "").lower():
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        trailers = list[tuple[str, str]]()
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            trailers.append(parse_header(line))
        return body, trailers
    return await reader.readexactly(int(values.get("content-length", "0") or 0)), []


def parse_header(line: bytes) -> tuple[str, str]:
    """Return the name and value of a header line."""
    name, _, value = line.decode("latin-1").rstrip("\r\n").partition(":")
    return name, value.strip()


def encode(body: bytes, framing: str) -> tuple[str, bytes]:
    """Return the headers that tell a body's end, and the body as it goes over the wire."""
    if framing in ("chunked", "trailers"):
        ending = b"X-Lab-Sum: 1\r\n" if framing == "trailers" else b""
        return "Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, ending)
    return (f"Content-Length: {len(body)}\r\n" if framing == "length" else ""), body


async def serve_one(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Receive one request on a connection and answer it; return whether the connection stays open."""
    global receiving
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    method, target, version = [*lines[0].split(b" ", 2), b"", b""][:3]
    headers = [parse_header(line) for line in lines[1:] if line]
    values = {name.lower(): value for name, value in headers}
    size = PROBED.get(target)
    receiving += 1
    try:
        if values.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body, trailers = await read_body(reader, headers)
        if size is None:
            records.append(
                {
                    "port": port, "method": method.decode("latin-1"), "target": target.decode("latin-1"),
                    "version": version.decode("latin-1"), "headers": headers, "trailers": trailers,
                    "body": f"{len(body)} bytes {hashlib.sha256(body).hexdigest()[:8]}" if body else "none",
                    "client": writer.get_extra_info("peername")[0],
                }
            )  # fmt: skip
    finally:
        receiving -= 1
    if values.get("upgrade", "").lower() == "websocket" and "upgrade" in values.get("connection", "").lower():
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
        await writer.drain()
        return False
    query = parse_qs(target.decode("latin-1").partition("?")[2])
    status, more, page, framing = answer_of(query.get("lab", [""])[0], values.get("host", ""))
    if target.startswith(b"/lab-auth") and not ({"authorization", "cookie"} & values.keys()):
        status, more, page = "401 Unauthorized", 'WWW-Authenticate: Basic realm="lab"\r\n', b"who are you?"
    if size is not None:
        page = bytes(size)
    ends, sent = encode(page, framing)
    head = f"HTTP/1.1 {status}\r\n{COMMON}Content-Type: text/plain\r\n{more}{ends}\r\n"
    writer.write(head.encode("latin-1") + (b"" if method == b"HEAD" or framing == "none" else sent))
    await writer.drain()
    return framing != "close" and version == b"HTTP/1.1" and values.get("connection", "").lower() != "close"


async def serve(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a connection until either side ends it."""
    try:
        while await serve_one(port, reader, writer):
            pass
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
        pass  # a proxy that closes its connection, or a request that is none: there is nothing to answer
    finally:
        writer.close()


async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request of the lab: the probe of the kubelet, or a take."""
    head = await reader.readuntil(b"\r\n\r\n")
    text = "ok"
    if head.startswith(b"GET /take "):
        for _ in range(int(IN_PROGRESS_S / 0.01)):
            if not receiving:
                break
            await asyncio.sleep(0.01)
        text = json.dumps(records)
        records.clear()
    data = text.encode()
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    await writer.drain()
    writer.close()


async def main(control_port: str, *ports: str) -> None:
    """Serve on all ports until the process is ended."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if any(text.endswith("s") for text in ports):
        tls.load_cert_chain(Path(__file__).with_name("tls.crt"), Path(__file__).with_name("tls.key"))

    async def listen(text: str) -> None:
        number = int(text.removesuffix("s"))
        context = tls if text.endswith("s") else None
        await asyncio.start_server(lambda *ends: serve(number, *ends), "0.0.0.0", number, ssl=context, limit=1 << 20)

    for text in ports:
        await listen(text)
    await asyncio.start_server(control, "0.0.0.0", int(control_port))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
