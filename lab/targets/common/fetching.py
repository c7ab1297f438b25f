"""One HTTP request over a connection that somebody else has made, with or without TLS: what targets' `fetch` share.

Refuses to verify anything: what is there is told.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from lab.model.endpoint import Endpoint, Response
from lab.targets.common import certificates


def place(endpoint: Endpoint) -> tuple[str, int]:
    """(host or address, port) that the endpoint's URL names."""
    url = urlsplit(endpoint.base_url)
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def fetch(
    connected: socket.socket,
    endpoint: Endpoint,
    path: str,
    headers: Mapping[str, str] | None,
    timeout_s: float,
) -> Response:
    """GET on this connection, which is closed afterwards; `body` as it came. Raises OSError, for what is no HTTP too.

    `timeout_s` is for each wait.
    """
    connected.settimeout(timeout_s)
    connection = http.client.HTTPConnection(*place(endpoint))
    connection.sock = connected
    tls: Mapping[str, str] = {}
    try:
        if urlsplit(endpoint.base_url).scheme == "https":
            connection.sock, tls = _encrypted(connected, endpoint.host)
        connection.request("GET", path, headers={"Host": endpoint.host, "Connection": "close", **(headers or {})})
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, answer.read(), named, tls)
    except http.client.HTTPException as error:
        raise OSError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()


def _encrypted(connection: socket.socket, host: str) -> tuple[ssl.SSLSocket, Mapping[str, str]]:
    """The connection with TLS, and what it agreed on. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    encrypted = context.wrap_socket(connection, server_hostname=host)
    cipher, der = encrypted.cipher(), encrypted.getpeercert(binary_form=True)
    shown = certificates.described(der) if der else {}
    return encrypted, {"version": encrypted.version() or "", "cipher": cipher[0] if cipher else "", **shown}
