"""The API server as one context reaches it: objects as plain dicts, by apiVersion and kind.

The only user of the kubernetes library's REST side (streams have `core`). Which path a kind has is asked of the server
once per group. Refuses to guess: what the server refuses is an error with its own words.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lab.base.errors import LabError, LostError, MeasuringError, UsageError
from lab.targets.cluster.connection import READ_S, Connection, Stream

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse as Answer

T = TypeVar("T")
Object = dict[str, Any]
RUN_LABEL = "lab/run"
"""On everything that the lab makes, namespaces first: what lacks it is somebody else's."""
BROUGHT_UP = "lab/brought-up"
"""Annotation of pod templates: another value, another pod."""
MANAGER = "ingress-lab"
"""Owner of the fields that the lab applies."""
CLIENT_NAMESPACE = "ingress-lab-client"
"""Of the generator's pod, the lease and the inventory. The variants' namespace is the manifests' own."""
CLIENT_POD = "generator"
EVICTION_REFUSED = 429
WRITTEN = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
_MAY_NOT = re.compile(r'User "(?P<who>[^"]*)" cannot (?P<what>\w+ resource "[^"]*".*)', re.IGNORECASE | re.DOTALL)
_UNDECLARED = re.compile(r"field not declared in schema|unknown field")
"""Of server-side apply, which answers 500 to it, and of what else decodes strictly."""


class ConflictError(LabError):
    """409: somebody else was faster."""

    exit_status = 1


class DeniedError(UsageError):
    """401 or 403: the message names verb, resource and who."""


@contextmanager
def right() -> Iterator[None]:
    """A right that is missing says nothing about the variant: LostError instead. Decorates what a disturbance does, too."""
    try:
        yield
    except DeniedError as error:
        raise LostError(
            error.place, error.fault, "ask for this right (lab/targets/cluster/README.md names them), then --resume"
        ) from None


def until(ask: Callable[[], T], limit_s: float, poll_s: float) -> T:
    """What `ask` answers as soon as that is something, else what it answered last when the time was over."""
    deadline = time.monotonic() + limit_s
    while not (answer := ask()) and time.monotonic() <= deadline:
        time.sleep(poll_s)
    return answer


class RefusedError(MeasuringError):
    """The server took the request and will not do it: an invalid field, an admission webhook, a quota."""


class Api(Connection):
    """UsageError: no kubeconfig, no such context. LostError from any call: the server does not answer."""

    def __init__(self, context: str, kubeconfig: Path | None = None) -> None:
        super().__init__(context, kubeconfig)
        file = (f"--kubeconfig={kubeconfig}",) if kubeconfig else ()
        self.kubectl = ("kubectl", f"--context={context}", *file)
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}

    def version(self) -> str:
        """`v1.34.4`."""
        return str(self.raw("/version")["gitVersion"])

    def resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        """(plural, namespaced) of a kind; None where the cluster does not know it."""
        if kind not in self._kinds.get(api_version, {}):
            answer = self._ask("GET", api_version, _root(api_version), missing=(404,))
            if answer.status == 404:
                return None
            self._kinds[api_version] = {
                item["kind"]: (item["name"], item["namespaced"])
                for item in answer.json()["resources"]
                if "/" not in item["name"]
            }
        return self._kinds[api_version].get(kind)

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """None = not there, or the kind is unknown to the cluster."""
        path = self._path(api_version, kind, namespace, name)
        answer = self._ask("GET", _said(kind, namespace, name), path, missing=(404,)) if path else None
        return None if answer is None or answer.status == 404 else answer.json()

    def list(self, api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        """Of all namespaces without one. Empty where the kind is unknown; every object with its apiVersion and kind."""
        if self.resource(api_version, kind) is None:
            return []
        found = self.listed(api_version, kind, namespace, labels)[0]
        return [{"apiVersion": api_version, "kind": kind, **item} for item in found]

    def listed(self, api_version: str, kind: str, namespace: str | None, labels: str = "") -> tuple[list[Object], str]:
        """Every object there of a kind that the cluster knows, and the resourceVersion of the whole: where a `watch` goes on."""
        path = self._path(api_version, kind, namespace) or ""
        found = self._ask("GET", _said(kind, namespace), path, {"labelSelector": labels} if labels else None).json()
        return found["items"], str(found.get("metadata", {}).get("resourceVersion"))

    def watch(self, api_version: str, kind: str, namespace: str, since: str) -> Stream:
        """Every change after that resourceVersion, a line of JSON each. OSError when there is no answer."""
        query = {"watch": "true", "resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": 3600}
        return self._stream(self._path(api_version, kind, namespace) or "", query, _said(kind, namespace))

    def follow(self, namespace: str, pod: str, container: str, since: str) -> Stream:
        """What a container writes, each line with its time, from that second on (empty: from its beginning). OSError."""
        query = {"container": container, "follow": "true", "timestamps": "true"} | (
            {"sinceTime": since} if since else {}
        )
        return self._stream(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query, f"log of pod {namespace}/{pod}")

    def change(
        self, api_version: str, kind: str, name: str, namespace: str, body: Object, subresource: str = ""
    ) -> Object:
        """A strategic merge patch of an object or one of its subresources."""
        path, said = self._path(api_version, kind, namespace, name) or "", _said(kind, namespace, name)
        if subresource:
            path, said = f"{path}/{subresource}", f"{subresource} of {said}"
        return self._ask("PATCH", said, path, WRITTEN, body, "application/strategic-merge-patch+json").json()

    def token(self, namespace: str, account: str, lasts_s: int) -> str:
        """One of a service account's, as a kubelet asks for it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lasts_s},
        }
        answer = self._ask("POST", _said("token of ServiceAccount", namespace, account), path, None, body)
        return str(answer.json()["status"]["token"])

    def evict(self, namespace: str, pod: str) -> str | None:
        """Ask for a pod's eviction: None, or in whose words a PodDisruptionBudget refused it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        path, said = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", f"eviction of Pod {namespace}/{pod}"
        answer = self._ask("POST", said, path, body=body, missing=(EVICTION_REFUSED,))
        if answer.status != EVICTION_REFUSED:
            return None
        for cause in (answer.json().get("details") or {}).get("causes") or ():
            if cause.get("reason") == "DisruptionBudget":
                return " ".join(str(cause.get("message")).split())
        raise self._fault(answer, "POST", said)

    def apply(self, obj: Mapping[str, Any]) -> Object:
        """Server-side apply: fields that MANAGER applied before and does not now, go. UsageError for a field that the server does not know."""
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        return self._write("PATCH", obj, query, obj["metadata"]["name"], "application/apply-patch+yaml")

    def create(self, obj: Mapping[str, Any]) -> Object:
        """ConflictError when it exists."""
        return self._write("POST", obj, WRITTEN)

    def replace(self, obj: Mapping[str, Any]) -> Object:
        """ConflictError when it has changed since its resourceVersion."""
        return self._write("PUT", obj, WRITTEN, obj["metadata"]["name"])

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        grace_s: int | None = None,
        orphan: bool = False,
    ) -> bool:
        """Ask for its end; what it owns goes after it, or, `orphan`, stays. Not there = fine.

        True = it is gone already, False = it is ending.
        """
        path, said = self._path(api_version, kind, namespace, name), _said(kind, namespace, name)
        if path is None:
            return True
        answer = self._ask("DELETE", said, path, body=_options(grace_s, orphan), missing=(404,))
        return answer.status == 404 or answer.json().get("kind") == "Status"

    def delete_all(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        labels: str,
        grace_s: int | None = None,
        orphan: bool = False,
    ) -> None:
        """One request for all that have these labels."""
        if (path := self._path(api_version, kind, namespace)) is not None:
            query, said = {"labelSelector": labels}, _said(kind, namespace)
            self._ask(
                "DELETE", said, path, query, _options(grace_s, orphan), read_s=60.0
            )  # 1000 Routes took 5 s on an idle disk

    def log(
        self, namespace: str, pod: str, container: str, lines: int, previous: bool = False, times: bool = False
    ) -> str:
        """The last lines that a container wrote, `times`: each behind its time; empty where it has none (yet)."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = {"container": container, "tailLines": lines, "previous": str(previous).lower()}
        query |= {"timestamps": "true"} if times else {}
        # A container that has not started, or is gone.
        answer = self._ask("GET", f"log of pod {namespace}/{pod}", path, query, missing=(400, 404))
        return answer.data.decode(errors="replace") if answer.status < 300 else ""

    def raw(self, path: str) -> Any:
        """GET → JSON, or the text that is none."""
        answer = self._ask("GET", path, path)
        try:
            return answer.json()
        except ValueError:
            return answer.data.decode(errors="replace")

    def denied(self, wanted: Iterable[tuple[str, str, str, str | None]]) -> list[str]:
        """Of (verb, group, resource or resource/subresource, namespace), those that you may not, in words."""

        def may(right: tuple[str, str, str, str | None]) -> bool:
            verb, group, resource, namespace = right
            what, _, subresource = resource.partition("/")
            attributes = {"verb": verb, "group": group, "resource": what, "subresource": subresource}
            spec = {"resourceAttributes": attributes | ({"namespace": namespace} if namespace else {})}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
            return bool(self.create(review)["status"]["allowed"])

        return [
            f"{verb} {resource}{'.' + group if group else ''}{f' in namespace {namespace}' if namespace else ''}"
            for verb, group, resource, namespace in dict.fromkeys(wanted)
            if not may((verb, group, resource, namespace))
        ]

    def _write(
        self,
        method: str,
        obj: Mapping[str, Any],
        query: Mapping[str, str | int],
        name: str | None = None,
        content_type: str = "application/json",
    ) -> Object:
        api_version, kind, namespace = obj["apiVersion"], obj["kind"], obj.get("metadata", {}).get("namespace")
        said = _said(kind, namespace, obj.get("metadata", {}).get("name"))
        path = self._path(api_version, kind, namespace, name)
        if path is None:
            fault, remedy = f"the cluster knows no {kind} of {api_version}", "install its CustomResourceDefinition"
            raise RefusedError(f"{self.place}: {said}", fault, remedy)
        return self._ask(method, said, path, query, obj, content_type).json()

    def _ask(
        self,
        method: str,
        said: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        missing: Container[int] = (),
        read_s: float = READ_S,
    ) -> Answer:
        """The answer, if it is a good one, or of a status that says that it is not there, or not to be had."""
        answer = self.send(method, path, query, body, content_type, read_s, missing)
        if answer.status < 300 or answer.status in missing:
            return answer
        raise self._fault(answer, method, said)

    def _stream(self, path: str, query: Mapping[str, str | int], said: str) -> Stream:
        found = self.stream(path, query)
        if not isinstance(found, Stream):
            raise self._fault(found, "GET", said)
        return found

    def _path(self, api_version: str, kind: str, namespace: str | None, name: str | None = None) -> str | None:
        found = self.resource(api_version, kind)
        if found is None:
            return None
        plural, namespaced = found
        inner = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{_root(api_version)}{inner}/{plural}" + (f"/{name}" if name else "")

    def _fault(self, answer: Answer, method: str, said: str) -> LabError:
        """What a bad answer says."""
        place = f"{self.place}: {said}"
        try:
            words = str(answer.json().get("message") or "").strip()
        except ValueError:
            words = ""
        words = words or answer.data[:300].decode(errors="replace").strip()
        if answer.status == 401:
            fault = f"{method}: the API server does not know you: {words}"
            return DeniedError(place, fault, "log in to the cluster again")
        if answer.status == 403 and (may_not := _MAY_NOT.search(words)):
            fault = f"user {may_not['who']} cannot {may_not['what']}"
            return DeniedError(place, fault, "ask for this right, or name another context")
        if answer.status == 403 and "attempting to grant RBAC permissions" in words:
            return DeniedError(place, words, "ask for the rights that this role grants, or name another context")
        if answer.status == 409:
            return ConflictError(place, words, "try again")
        fault, remedy = f"{method} refused ({answer.status}): {words}", "correct what it names"
        return UsageError(place, fault, remedy) if _UNDECLARED.search(words) else RefusedError(place, fault, remedy)


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _said(kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """`Deployment ingress-lab/proxy`."""
    return " ".join(filter(None, (kind, "/".join(filter(None, (namespace, name))))))


def _options(grace_s: int | None, orphan: bool) -> Object:
    policy = "Orphan" if orphan else "Background"
    grace = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    return {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, **grace}
