"""One HTTP request over a connection that somebody else has made, with or without TLS: what targets' `fetch` share.

Refuses to verify anything: what is there is told.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from urllib3.util.ssltransport import SSLTransport

from lab.model.endpoint import Endpoint, Response
from lab.systems.manifests import certificates
from lab.targets.common import key_exchange


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
            connection.sock = heard = key_exchange.Heard(connected)
            connection.sock, tls = _encrypted(heard, endpoint.host)
        connection.request("GET", path, headers={"Host": endpoint.host, "Connection": "close", **(headers or {})})
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, answer.read(), named, tls)
    except http.client.HTTPException as error:
        raise OSError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()


def _encrypted(connection: key_exchange.Heard, host: str) -> tuple[SSLTransport, Mapping[str, str]]:
    """The connection with TLS, and what it agreed on. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    encrypted = SSLTransport(connection, context, server_hostname=host)  # ssl's own reads past our socket's `recv`
    cipher, der = (encrypted.cipher() or ("",))[0], encrypted.getpeercert(binary_form=True)
    agreed = {"version": encrypted.version(), "cipher": cipher, "group": key_exchange.group(connection.heard, cipher)}
    told = {name: value for name, value in agreed.items() if value}
    return encrypted, told | (certificates.described(der) if der else {})
