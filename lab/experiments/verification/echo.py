"""The backend of a verification: an HTTP server that records each request, and gives the answer that the query names.

    python3 echo.py CONTROL PORT[s]…      each PORT takes the place of a Service; with an `s` it speaks TLS
    GET :CONTROL/take                     return the requests since the last such call, as JSON, and forget them

`?lab=NAME` in the URL chooses one of `ANSWERS`; without a name, the answer is a page of text. A path that begins with
/lab-auth is an authentication service: the status is 200 if the request has an Authorization or Cookie header, else
401. Such requests are not recorded, because the proxy sends them, not a client.

The server runs in a container, and uses only Python's standard library. The files tls.crt and tls.key are in its folder.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import ssl
import sys
from pathlib import Path
from typing import Any

PAGE = b"The quick brown fox jumps over the lazy dog. " * 45
"""The page: compressible, longer than the shortest body that any proxy compresses."""
PROBED = {b"/1kB.bin": bytes(1024)}
"""The page that is not recorded: the lab asks for it to see whether the system serves."""
COMMON = (
    "Server: lab-echo\r\nX-Powered-By: lab\r\nLast-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\n"
    'ETag: "lab"\r\nX-Lab-Echo: 1\r\nContent-Type: text/plain\r\n'
)
ANSWERS: dict[str, tuple[str, str, bytes, str]] = {
    "": ("200 OK", "", PAGE, "length"),
    "redirect": ("302 Found", "Location: http://{host}/lab-elsewhere\r\n", b"", "length"),
    "relative": ("301 Moved Permanently", "Location: /lab-elsewhere\r\n", b"", "length"),
    "cookie": ("200 OK", "Set-Cookie: a=1; Path=/; HttpOnly\r\nSet-Cookie: b=2; Domain=lab.test\r\n", PAGE, "length"),
    "trailers": ("200 OK", "Trailer: X-Lab-Sum\r\n", PAGE, "trailers"),
    "chunked": ("200 OK", "", PAGE, "chunked"),
    "close": ("200 OK", "Connection: close\r\n", PAGE, "close"),
    "large-header": ("200 OK", f"X-Lab-Large: {'a' * 6000}\r\n", PAGE, "length"),
    "security": (
        "200 OK",
        "Strict-Transport-Security: max-age=60\r\nX-Frame-Options: DENY\r\nX_Lab_Underscore: 1\r\n",
        PAGE,
        "length",
    ),
    "204": ("204 No Content", "", b"", "none"),
    "404": ("404 Not Found", "", b"the backend has no such page", "length"),
    "503": ("503 Service Unavailable", "Retry-After: 7\r\n", b"the backend is busy", "length"),
    "auth": ("401 Unauthorized", 'WWW-Authenticate: Basic realm="lab"\r\n', b"who are you?", "length"),
}
"""Name of an answer → (status, further headers, body, how the end of the body shows)."""
ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""What a server adds to a WebSocket's key to accept it (RFC 6455, 1.3); HAProxy refuses an answer that does not."""
WAIT_S = 0.01
LOOKS = 50
"""The number of looks, each after WAIT_S, at whether a request is still being received."""

records: list[dict[str, Any]] = []
receiving: set[int] = set()


def parse_headers(lines: list[bytes]) -> list[tuple[str, str]]:
    """Return (name, value) for each line of an HTTP header."""
    pairs = (line.decode("latin-1").rstrip("\r\n").partition(":") for line in lines)
    return [(name, value.strip()) for name, _, value in pairs if name]


async def read_body(reader: asyncio.StreamReader, values: dict[str, str]) -> tuple[bytes, list[tuple[str, str]]]:
    """Read the body of a request from a connection, and return the body and its trailers (headers after a chunked body).

    Args:
        reader: The connection, after the request's headers were read.
        values: Name of a header, in lower case → its value.

    """
    if "chunked" not in values.get("transfer-encoding", "").lower():
        return await reader.readexactly(int(values.get("content-length") or 0)), []
    body, trailers = b"", list[bytes]()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        trailers.append(line)
    return body, parse_headers(trailers)


def encode(body: bytes, framing: str) -> tuple[str, bytes]:
    """Return the header line that shows where a body ends (empty if there is none), and the body as it is sent.

    Args:
        body: The body.
        framing: How the end shows: `length` (a header with the length), `chunked`, `trailers` (chunked, with a trailer), `close` (end of
            the connection) or `none`.

    """
    if framing in ("chunked", "trailers"):
        ending = b"X-Lab-Sum: 1\r\n" if framing == "trailers" else b""
        return "Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, ending)
    return (f"Content-Length: {len(body)}\r\n" if framing == "length" else ""), body


async def serve_one(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Receive one request on a connection, record it and answer it; return whether the connection stays open.

    Args:
        port: The port on which the connection was accepted, for the record.
        reader: The connection's input.
        writer: The connection's output.

    """
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    method, target, version = (*(part.decode("latin-1") for part in lines[0].split(b" ", 2)), "", "")[:3]
    headers = parse_headers(lines[1:])
    values = {name.lower(): value for name, value in headers}
    receiving.add(id(reader))
    try:
        if values.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body, trailers = await read_body(reader, values)
    finally:
        receiving.discard(id(reader))
    probed, authenticates = PROBED.get(target.encode("latin-1")), target.startswith("/lab-auth")
    if probed is None and not authenticates:
        digest = f"{len(body)} bytes {hashlib.sha256(body).hexdigest()[:8]}" if body else "none"
        client = writer.get_extra_info("peername")[0]
        records.append({"port": port, "method": method, "target": target, "version": version, "headers": headers,
                        "trailers": trailers, "body": digest, "client": client})  # fmt: skip
    if values.get("upgrade", "").lower() == "websocket" and "upgrade" in values.get("connection", "").lower():
        accepted = base64.b64encode(hashlib.sha1(f"{values.get('sec-websocket-key')}{ACCEPT}".encode()).digest())
        switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(b"%sSec-WebSocket-Accept: %s\r\n\r\nhello" % (switch, accepted))
        return False
    match = re.search(r"[?&]lab=([\w-]+)", target)
    refused = authenticates and not ({"authorization", "cookie"} & values.keys())
    status, more, page, framing = ANSWERS.get("auth" if refused else match[1] if match else "", ANSWERS[""])
    ends, sent = encode(page if probed is None else probed, framing)
    answer = f"HTTP/1.1 {status}\r\n{COMMON}{more.format(host=values.get('host', ''))}{ends}\r\n"
    writer.write(answer.encode("latin-1") + (b"" if method == "HEAD" else sent))
    return framing != "close" and version == "HTTP/1.1" and values.get("connection", "").lower() != "close"


async def serve(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection until the client or the server closes it."""
    try:
        while await serve_one(port, reader, writer):
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
        pass  # a proxy that closes its connection, or a request that is none: there is nothing to answer
    finally:
        writer.close()


async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request on the control port: a probe of the kubelet, or `GET /take`, which returns and deletes the recorded requests."""
    head, text = await reader.readuntil(b"\r\n\r\n"), "ok"
    if head.startswith(b"GET /take "):
        for _ in range(LOOKS):
            await asyncio.sleep(WAIT_S if receiving else 0)
        text = json.dumps(records)
        records.clear()
    data = text.encode()
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    writer.close()


async def main(control_port: str, *ports: str) -> None:
    """Serve on all ports until the process is ended.

    Args:
        control_port: The port for requests of the lab itself.
        *ports: The ports to record, one for each Service; a port that ends in `s` speaks TLS.

    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if any(text.endswith("s") for text in ports):
        tls.load_cert_chain(Path(__file__).with_name("tls.crt"), Path(__file__).with_name("tls.key"))
    for text in ports:
        number, context = int(text.removesuffix("s")), tls if text.endswith("s") else None
        await asyncio.start_server(
            lambda *ends, number=number: serve(number, *ends), "0.0.0.0", number, ssl=context, limit=1 << 20
        )
    await asyncio.start_server(control, "0.0.0.0", int(control_port))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
