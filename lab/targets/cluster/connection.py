"""HTTPS requests to the API server of a Kubernetes cluster, each with a time limit.

The cluster is that of a named context of a kubeconfig; the kubeconfig's current context is never used. The kubernetes library
reads the kubeconfig, gets credentials (exec plugins included) and makes the TLS connections. This module adds what the library
does not do well: timeouts, retries, NO_PROXY (which its release 35.0 ignores), and readable error messages. `import kubernetes`
takes 1 to 3 s, so it is done only when a context is opened.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
import time
import urllib.request
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from lab.base.errors import LostError, UsageError, refuse_unknown

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse as Answer

CONNECT_S, READ_S = 5.0, 15.0
BLIP_S = 5.0
"""The seconds for which a request is sent again that got no answer, or a status that means `not now`."""


class Stream:
    """The lines of an answer that the API server continues to write, such as a watch or a log.

    One thread reads the lines. Any thread may close the stream.
    """

    def __init__(self, response: Answer) -> None:
        self._response, self._closed = response, False

    def lines(self) -> Iterator[bytes]:
        """Yield each line until the server ends the answer or `close` is called.

        Raises:
            OSError: The connection broke.

        """
        partial = b""
        try:
            for part in self._response.stream(1 << 16):
                *complete, partial = (partial + part).split(b"\n")
                yield from complete
        except Exception as error:  # noqa: BLE001  # urllib3's, http.client's and ssl's own kinds
            if not self._closed:
                raise OSError(_find_cause(error)) from None
        finally:
            self._response.close()

    def close(self) -> None:
        """End the stream, even while another thread waits for its next line. Idempotent."""
        self._closed = True
        with suppress(Exception):  # it has ended already
            self._response.shutdown()


def list_contexts() -> list[str]:
    """Return the names of the contexts in the user's kubeconfig, for error messages.

    The list is empty if there is no context or the kubeconfig cannot be read. That fault is reported later, when a
    context is opened.
    """
    try:
        return _read_contexts(_kubeconfig_files(None))
    except Exception:  # noqa: BLE001  # opening a context reports the fault
        return []


def _read_contexts(files: str) -> list[str]:
    """Return the names of all contexts in several kubeconfig files.

    The kubernetes library has such a function, too, but it refuses a kubeconfig without a current context.

    Args:
        files: The paths of the files, joined by `:` as in the environment variable KUBECONFIG.

    """
    from kubernetes.config.kube_config import KubeConfigMerger  # see the module's docstring

    merged: Any = KubeConfigMerger(files).config
    return [] if merged is None else [item.value["name"] for item in merged.value["contexts"]]


def _kubeconfig_files(kubeconfig: Path | None) -> str:
    return str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"


class Connection:
    """A connection to the API server of one kubeconfig context; nothing is sent before the first request.

    Raises:
        UsageError: There is no kubeconfig, the kubeconfig has no such context, or there are no credentials.

    """

    def __init__(self, context: str, kubeconfig: Path | None = None) -> None:
        self.context, self.place = context, f"context {context}"
        self._kubeconfig_files = _kubeconfig_files(kubeconfig)
        self._open()

    def _open(self) -> None:
        """Load the credentials from the kubeconfig, and replace the HTTP client by one with new connections."""
        from kubernetes import client, config  # see the module's docstring

        self._configuration = client.Configuration()
        # Three watches and one log per proxy hold a connection each; threads send further requests at the same time.
        self._configuration.connection_pool_maxsize = 32
        # The library logs a failed credential plugin instead of raising it. Without a target the handler keeps all logs.
        problems = MemoryHandler(capacity=1)
        problems.setLevel(logging.ERROR)
        logging.getLogger().addHandler(problems)
        try:
            contexts = _read_contexts(self._kubeconfig_files)
            refuse_unknown(self.context, contexts, self.place, f"is not in {self._kubeconfig_files}")
            config.load_kube_config(self._kubeconfig_files, self.context, self._configuration, persist_config=False)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  # the library raises all sorts of errors for a file it cannot use
            remedy = "name the file by KUBECONFIG or --kubeconfig; `kubectl config get-contexts` reads it, too"
            raise UsageError(self.place, f"{self._kubeconfig_files}: {_find_cause(error)}", remedy) from None
        finally:
            logging.getLogger().removeHandler(problems)
        if problems.buffer and not (self._configuration.api_key or self._configuration.cert_file):
            problem = " ".join(problems.buffer[-1].getMessage().split())
            raise UsageError(self.place, f"no credentials: {problem}", "log in to the cluster again")
        # As kubectl does it: HTTPS_PROXY for https, NO_PROXY honoured, this machine itself never through a proxy.
        url = urlsplit(self._configuration.host)
        host = url.hostname or ""
        direct = host in ("localhost", "::1") or host.startswith("127.") or urllib.request.proxy_bypass(host)
        self._configuration.proxy = None if direct else urllib.request.getproxies().get(url.scheme)
        self._configuration.no_proxy = ""
        self.client = client.ApiClient(self._configuration)

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        read_s: float = READ_S,
        accepted: Container[int] = (),
    ) -> Answer:
        """Send one request and return the answer, whatever its status is; the caller handles bad statuses.

        The request is repeated for BLIP_S seconds if there is no answer, or if the status means that the server cannot
        do it now (429, 502, 503 or 504). After a 401 it is repeated once with fresh credentials, because the token of
        a cloud may be valid for a quarter of an hour only.

        Args:
            method: The HTTP method.
            path: The path.
            query: The parameters of the query; None = none.
            body: The body, which is sent as JSON; None sends none.
            content_type: The content type of the body.
            read_s: The seconds to wait for the answer.
            accepted: Statuses after which the request is not repeated, such as the 429 of a refused eviction.

        Raises:
            LostError: For BLIP_S seconds the server did not answer, or answered that it cannot do it now.
            UsageError: The TLS handshake failed.

        """
        deadline = time.monotonic() + BLIP_S
        url = path + ("?" + urlencode(query) if query else "")
        delay_s, renewed = 0.1, False
        while True:
            answer: Answer | None = None
            try:
                answer = self._request(method, url, body, content_type, read_s, preload=True)
            except ssl.SSLError as error:
                remedy = "correct the kubeconfig (certificate-authority-data, client-certificate-data)"
                raise UsageError(self.place, f"TLS: {_find_cause(error)}", remedy) from None
            except OSError as error:
                fault = _find_cause(error)
            else:
                if answer.status == 401 and not renewed:
                    renewed = True
                    self._open()
                    continue
                if answer.status not in (429, 502, 503, 504) or answer.status in accepted:
                    return answer
                fault = f"status {answer.status}: {answer.data[:300].decode(errors='replace').strip()}"
            if time.monotonic() + delay_s > deadline:
                server = urlsplit(self._configuration.host).netloc
                server += f", by the proxy {self._configuration.proxy}" if self._configuration.proxy else ""
                message = f"the API server does not {'answer' if answer is None else 'do it now'}: {server}: {fault}"
                remedy = "`just doctor` tries it; is the cluster up, and the address in the kubeconfig right?"
                raise LostError(self.place, message, remedy) from None
            time.sleep(delay_s)
            delay_s = min(1.0, delay_s * 2)

    def stream(self, path: str, query: Mapping[str, str | int]) -> Answer:
        """Send a GET whose answer the server continues to write, and return the answer, whatever its status is.

        Args:
            path: The path.
            query: The parameters of the query.

        Raises:
            OSError: The server does not answer. The request is not repeated, because only the caller knows what it
                missed.

        """
        return self._request("GET", f"{path}?{urlencode(query)}", None, "", None, preload=False)

    def _request(
        self, method: str, url: str, body: Any, content_type: str, read_s: float | None, preload: bool
    ) -> Answer:
        """Send one request, and return urllib3's response.

        Args:
            method: The HTTP method.
            url: The path with the query.
            body: The body, which is sent as JSON; None sends none.
            content_type: The content type of the body.
            read_s: The seconds to wait for the answer; None = no limit.
            preload: Whether to read the whole body before returning.

        Raises:
            OSError: There is no answer, for whatever reason.

        """
        import urllib3  # the kubernetes library's own

        headers = {"Accept": "application/json", "User-Agent": "ingress-lab"}
        if body is not None:
            headers["Content-Type"] = content_type
        self.client.update_params_for_auth(headers, [], ["BearerToken"])
        try:
            return self.client.rest_client.pool_manager.request(
                method,
                self._configuration.host + url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=read_s),
                retries=False,
                preload_content=preload,
            )
        except urllib3.exceptions.SSLError as error:
            raise ssl.SSLError(_find_cause(error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise OSError(_find_cause(error)) from None


def _find_cause(error: BaseException) -> str:
    """Return a short text for the innermost cause of an error, such as `Connection refused` or `timed out`."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    for deepest in reversed(chain):
        if isinstance(deepest, TimeoutError):
            return "timed out"
        if isinstance(deepest, OSError) and deepest.strerror:
            return deepest.strerror
    return " ".join(str(error).split()) or type(error).__name__
