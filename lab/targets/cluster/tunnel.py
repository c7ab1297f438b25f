"""A TCP connection as from the generator's pod: the API server forwards to the pod's SOCKS server, which connects and resolves.

    connect → websocket …/pods/generator/portforward?ports=1080 → microsocks there → ("web.h2", 80)

All of it is in this process, so nothing outlives the lab. One websocket carries one connection, moved between it and a
socket pair by a thread of its own: the caller gets a real socket, which TLS needs. The library's own port-forward would
do but for three things (35.0): it connects without a timeout, changes its API client meanwhile (so that one thread at
a time may), and carries 12 MB/s where this carries 96. Either takes 22 ms for a connection and a kilobyte. The end of a
connection is told a second late (the kubelet waits for more), so an answer should say how long it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import struct
import threading
from typing import Any

from lab.targets.cluster.api import CLIENT_NAMESPACE, CLIENT_POD, Api

DATA = 0
"""Channel of a forwarded port's bytes, beside that of its errors: the first byte of every frame."""
CLOSING = 8
"""Opcode of a frame that ends a websocket (RFC 6455)."""
STUCK_S = 60.0
"""A frame that is only partly there, or that the other side does not take, for so long: the connection is given up."""
_REFUSALS = {
    1: errno.EHOSTUNREACH, 2: errno.EPERM, 3: errno.ENETUNREACH, 4: errno.EHOSTUNREACH,
    5: errno.ECONNREFUSED, 6: errno.ETIMEDOUT, 7: errno.EOPNOTSUPP, 8: errno.EAFNOSUPPORT,
}  # fmt: skip
"""SOCKS5's replies (RFC 1928) as this machine's own errors."""


def connect(api: Api, address: tuple[str, int], timeout_s: float) -> socket.socket:
    """A connection to (host or address, port) from the generator's pod, with this timeout. Raises OSError."""
    try:
        websocket = _open(api, timeout_s)
    except OSError:
        raise
    except Exception as error:  # websocket-client's own kinds, for a handshake that was refused
        words = " ".join(str(error).split())[:300]
        raise OSError(f"port-forward to pod {CLIENT_NAMESPACE}/{CLIENT_POD}: {words}") from error
    ours, theirs = socket.socketpair()
    ours.settimeout(timeout_s)
    theirs.settimeout(STUCK_S)
    websocket.settimeout(STUCK_S)
    threading.Thread(target=_pump, args=(websocket, theirs), name="tunnel", daemon=True).start()
    try:
        _ask_socks(ours, *address)
    except BaseException:
        ours.close()
        raise
    return ours


def _open(api: Api, timeout_s: float) -> Any:
    """The websocket, by the credentials and through the proxy of the API's own client; the library's way has no timeout."""
    import certifi
    import websocket
    from kubernetes.stream import ws_client  # takes a second: see lab.targets.cluster.connection

    client = api.client
    known = client.configuration
    headers: dict[str, str] = {}
    client.update_params_for_auth(headers, [], ["BearerToken"])
    trust: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE}
    if known.verify_ssl:
        trust = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": known.ssl_ca_cert or certifi.where()}
    named = {"certfile": known.cert_file, "keyfile": known.key_file, "server_hostname": known.tls_server_name}
    trust |= {name: value for name, value in named.items() if value}
    path = f"{known.host}/api/v1/namespaces/{CLIENT_NAMESPACE}/pods/{CLIENT_POD}/portforward"
    url = str(ws_client.get_websocket_url(path, [("ports", 1080)]))
    options: dict[str, Any] = {"header": [f"{name}: {value}" for name, value in headers.items()]}
    if known.proxy:
        options = ws_client.websocket_proxycare(options, known, url, headers)
    return websocket.create_connection(
        url, timeout=timeout_s, sslopt=trust, subprotocols=["v4.channel.k8s.io"], enable_multithread=False, **options
    )


def _pump(websocket: Any, local: socket.socket) -> None:
    """Move bytes until one side ends, then end the other."""
    opened: set[int] = set()
    remote = websocket.sock
    with local, contextlib.suppress(Exception):  # whatever ends it, the caller sees the end of its socket
        try:
            while True:
                buffered = isinstance(remote, ssl.SSLSocket) and remote.pending() > 0
                readable = [remote] if buffered else select.select([remote, local], [], [])[0]
                if remote in readable:
                    _, frame = websocket.recv_data_frame(control_frame=True)
                    channel = frame.data[0] if frame.data else DATA
                    if frame.opcode == CLOSING or (channel != DATA and channel in opened):
                        break  # its end, or that the connection could not be made, or broke
                    if frame.data and channel in opened:
                        local.sendall(frame.data[1:])
                    elif frame.data:  # the first frame of a channel names the port
                        opened.add(channel)
                if local in readable:
                    content = local.recv(1 << 16)
                    if not content:
                        break
                    websocket.send_binary(bytes((DATA,)) + content)
        finally:
            websocket.shutdown()


def _ask_socks(connection: socket.socket, host: str, port: int) -> None:
    """RFC 1928, without a password; the server resolves the name."""
    name = host.encode("idna")
    _exactly(connection, b"\x05\x01\x00", 2)
    reply = _exactly(connection, b"\x05\x01\x00\x03" + bytes((len(name),)) + name + struct.pack("!H", port), 5)
    # What it is bound to, and the port: of no use, but in the way.
    _exactly(connection, b"", {1: 4 + 2 - 1, 3: reply[4] + 2, 4: 16 + 2 - 1}[reply[3]])
    if reply[1]:
        number = _REFUSALS.get(reply[1], errno.EIO)
        words = "no such name, or no way to it" if reply[1] == 1 else os.strerror(number)
        raise OSError(number, f"{host}:{port} from the generator's pod: {words}")


def _exactly(connection: socket.socket, said: bytes, size: int) -> bytes:
    """Send, if there is something to say, then read so many bytes."""
    if said:
        connection.sendall(said)  # of nothing, too, it would ask whether the other end is there
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "the port-forward to the generator's pod ended")
        got += part
    return got
