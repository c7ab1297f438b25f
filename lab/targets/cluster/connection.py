"""One named context of a kubeconfig → HTTPS requests with deadlines. Never the current context.

The kubernetes library reads the kubeconfig, gets credentials (exec plugins too) and makes the TLS connections; what it
does not do well is done here: timeouts, retries, NO_PROXY (which its 35.0 forgets), and faults in words.
`import kubernetes` costs 1 to 3 s, so it waits until a context is opened.
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

from lab.base.errors import LostError, UsageError, did_you_mean

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse as Answer

CONNECT_S, READ_S = 5.0, 15.0
BLIP_S = 5.0
"""For so long a request that met no answer, or `not now`, is sent again."""


class Stream:
    """An answer that goes on, line by line. Read by one thread, closed by any."""

    def __init__(self, response: Answer) -> None:
        self._response, self._closed = response, False

    def lines(self) -> Iterator[bytes]:
        """Until the server ends it or `close` was called. OSError when the connection breaks."""
        left = b""
        try:
            for part in self._response.stream(1 << 16):
                *whole, left = (left + part).split(b"\n")
                yield from whole
        except Exception as error:  # noqa: BLE001  # urllib3's, http.client's and ssl's own kinds
            if not self._closed:
                raise OSError(_words(error)) from None
        finally:
            self._response.close()

    def close(self) -> None:
        """End it, whoever is waiting for the next line; idempotent."""
        self._closed = True
        with suppress(Exception):  # it has ended already
            self._response.shutdown()


def contexts() -> list[str]:
    """Names in the user's kubeconfig, for complaints; empty where it has none or cannot be read."""
    try:
        return _contexts(_files(None))
    except Exception:  # noqa: BLE001  # whoever opens a context gets the fault in words
        return []


def _contexts(files: str) -> list[str]:
    """Also of a kubeconfig without a current context, which the library's own list does not take."""
    from kubernetes.config.kube_config import KubeConfigMerger  # see the module's docstring

    merged: Any = KubeConfigMerger(files).config
    return [] if merged is None else [item.value["name"] for item in merged.value["contexts"]]


def _files(kubeconfig: Path | None) -> str:
    return str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"


class Connection:
    """UsageError: no kubeconfig, no such context, no credentials. Nothing is asked of the server yet."""

    def __init__(self, context: str, kubeconfig: Path | None = None) -> None:
        self.context, self.place = context, f"context {context}"
        self._files = _files(kubeconfig)
        self._open()

    def _open(self) -> None:
        """Credentials anew, connections too."""
        from kubernetes import client, config  # see the module's docstring

        self._configuration = client.Configuration()
        # Three watches and a log per proxy hold a connection each, and what is asked beside them comes in threads.
        self._configuration.connection_pool_maxsize = 32
        # What the library logs instead of raising it: that a credential plugin failed. Without a target all is kept.
        problems = MemoryHandler(capacity=1)
        problems.setLevel(logging.ERROR)
        logging.getLogger().addHandler(problems)
        try:
            if self.context not in (known := _contexts(self._files)):
                raise UsageError(self.place, f"is not in {self._files}", did_you_mean(self.context, known))
            config.load_kube_config(self._files, self.context, self._configuration, persist_config=False)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever the library makes of a file that somebody else wrote
            remedy = "name the file by KUBECONFIG or --kubeconfig; `kubectl config get-contexts` reads it, too"
            raise UsageError(self.place, f"{self._files}: {_words(error)}", remedy) from None
        finally:
            logging.getLogger().removeHandler(problems)
        if problems.buffer and not (self._configuration.api_key or self._configuration.cert_file):
            said = " ".join(problems.buffer[-1].getMessage().split())
            raise UsageError(self.place, f"no credentials: {said}", "log in to the cluster again")
        # As kubectl has it: HTTPS_PROXY for https, NO_PROXY honoured, the machine itself never by a proxy.
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
        answers: Container[int] = (),
    ) -> Answer:
        """One request. LostError when there is no answer, again and again for BLIP_S; a bad status is the caller's.

        401 gets fresh credentials once: a token of a cloud lives for a quarter of an hour. `answers`: statuses that are
        answers here and not `not now` (an eviction's 429).
        """
        give_up = time.monotonic() + BLIP_S
        url = path + ("?" + urlencode(query) if query else "")
        delay_s, renewed = 0.1, False
        while True:
            answer: Answer | None = None
            try:
                answer = self._request(method, url, body, content_type, read_s, whole=True)
            except ssl.SSLError as error:
                remedy = "correct the kubeconfig (certificate-authority-data, client-certificate-data)"
                raise UsageError(self.place, f"TLS: {_words(error)}", remedy) from None
            except OSError as error:
                fault = _words(error)
            else:
                if answer.status == 401 and not renewed:
                    renewed = True
                    self._open()
                    continue
                if answer.status not in (429, 502, 503, 504) or answer.status in answers:
                    return answer
                fault = f"status {answer.status}: {answer.data[:300].decode(errors='replace').strip()}"
            if time.monotonic() + delay_s > give_up:
                where = urlsplit(self._configuration.host).netloc
                where += f", by the proxy {self._configuration.proxy}" if self._configuration.proxy else ""
                said = f"the API server does not {'answer' if answer is None else 'do it now'}: {where}: {fault}"
                remedy = "`just doctor` tries it; is the cluster up, and the address in the kubeconfig right?"
                raise LostError(self.place, said, remedy) from None
            time.sleep(delay_s)
            delay_s = min(1.0, delay_s * 2)

    def stream(self, path: str, query: Mapping[str, str | int]) -> Stream | Answer:
        """A GET whose answer goes on; one as of `send` where its status is bad. OSError: who follows knows what is lost by it."""
        response = self._request("GET", f"{path}?{urlencode(query)}", None, "", None, whole=False)
        return Stream(response) if response.status < 300 else response

    def _request(
        self, method: str, url: str, body: Any, content_type: str, read_s: float | None, whole: bool
    ) -> Answer:
        """urllib3's response, read whole or not. OSError for whatever kept it away."""
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
                preload_content=whole,
            )
        except urllib3.exceptions.SSLError as error:
            raise ssl.SSLError(_words(error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise OSError(_words(error)) from None


def _words(error: BaseException) -> str:
    """The innermost cause, on one line: `Connection refused` rather than three classes around it."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    for deepest in reversed(chain):
        if isinstance(deepest, TimeoutError):
            return "timed out"
        if isinstance(deepest, OSError) and deepest.strerror:
            return deepest.strerror
    return " ".join(str(error).split()) or type(error).__name__
