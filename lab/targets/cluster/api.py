"""The API server of one kubeconfig context: objects as plain dicts, addressed by apiVersion and kind.

No other module uses the kubernetes library's REST side. The server is queried once per group for the path of
each kind. Nothing is guessed: what the server refuses becomes an error in the server's words.
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
"""The label on everything that the lab makes, namespaces first: an object without it belongs to somebody else."""
BROUGHT_UP = "lab/brought-up"
"""The annotation of pod templates that forces new pods: another value makes another pod."""
MANAGER = "ingress-lab"
"""The owner of the fields that the lab applies."""
CLIENT_NAMESPACE = "ingress-lab-client"
"""The namespace of the generator's pod, the lease and the inventory; the manifests name the variants' namespace."""
CLIENT_POD = "generator"
EVICTION_REFUSED = 429
WRITE_QUERY = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
_MAY_NOT = re.compile(r'User "(?P<who>[^"]*)" cannot (?P<what>\w+ resource "[^"]*".*)', re.IGNORECASE | re.DOTALL)
_UNDECLARED = re.compile(r"field not declared in schema|unknown field")
"""The messages about an unknown field: from server-side apply, which answers 500, and from other strict decoders."""


class ConflictError(LabError):
    """The error for the API server's status 409: another client has made or changed the object meanwhile."""

    exit_status = 1


class DeniedError(UsageError):
    """The error for a request that the API server denies: the user is unknown (401), or lacks a right (403).

    For a missing right the message names the user, the verb and the resource.
    """


@contextmanager
def lost_without_right() -> Iterator[None]:
    """Turn a DeniedError (the API server denies a right) of the block into a LostError, which stops the run.

    A missing right says nothing about the variant. The context manager is also used as a decorator, for methods that
    disrupt a system.
    """
    try:
        yield
    except DeniedError as error:
        raise LostError(
            error.place, error.fault, "ask for this right (lab/targets/cluster/README.md names them), then --resume"
        ) from None


def poll_until(ask: Callable[[], T], limit_s: float, poll_s: float) -> T:
    """Call `ask` every `poll_s` seconds until its result is truthy or `limit_s` seconds are over.

    The last result is returned; it is falsy if the time was over.
    """
    deadline = time.monotonic() + limit_s
    while not (answer := ask()) and time.monotonic() <= deadline:
        time.sleep(poll_s)
    return answer


class RefusedError(MeasuringError):
    """The refusal of a request that reached the server: an invalid field, an admission webhook, a quota."""


class Api(Connection):
    """The API server of one kubeconfig context.

    Every call raises LostError when the server does not answer.

    Raises:
        UsageError: There is no kubeconfig, or no such context in the kubeconfig.

    """

    def __init__(self, context: str, kubeconfig: Path | None = None) -> None:
        super().__init__(context, kubeconfig)
        file = (f"--kubeconfig={kubeconfig}",) if kubeconfig else ()
        self.kubectl = ("kubectl", f"--context={context}", *file)
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}

    def version(self) -> str:
        """Return the server's version, such as `v1.34.4`."""
        return str(self.raw("/version")["gitVersion"])

    def resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        """Return the plural name of a kind and whether it has namespaces; None where the cluster does not know it."""
        if kind not in self._kinds.get(api_version, {}):
            answer = self._send_checked("GET", api_version, _build_root(api_version), accepted=(404,))
            if answer.status == 404:
                return None
            self._kinds[api_version] = {
                item["kind"]: (item["name"], item["namespaced"])
                for item in answer.json()["resources"]
                if "/" not in item["name"]
            }
        return self._kinds[api_version].get(kind)

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return an object; None when it does not exist or the cluster does not know its kind."""
        path = self._build_path(api_version, kind, namespace, name)
        answer = self._send_checked("GET", _describe(kind, namespace, name), path, accepted=(404,)) if path else None
        return None if answer is None or answer.status == 404 else answer.json()

    def list(self, api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        """Return the objects of a kind, each with its apiVersion and kind; empty where the cluster lacks the kind.

        Args:
            namespace: The namespace to look in; None means all namespaces.
            labels: A label selector; empty selects all objects.

        """
        if self.resource(api_version, kind) is None:
            return []
        items = self.listed(api_version, kind, namespace, labels)[0]
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    def listed(self, api_version: str, kind: str, namespace: str | None, labels: str = "") -> tuple[list[Object], str]:
        """Return the objects of a kind, and the resourceVersion from which a `watch` continues the list.

        The cluster must know the kind.

        Args:
            namespace: The namespace to look in; None means all namespaces.
            labels: A label selector; empty selects all objects.

        """
        path = self._build_path(api_version, kind, namespace) or ""
        answer = self._send_checked(
            "GET", _describe(kind, namespace), path, {"labelSelector": labels} if labels else None
        ).json()
        return answer["items"], str(answer.get("metadata", {}).get("resourceVersion"))

    def watch(self, api_version: str, kind: str, namespace: str, since: str) -> Stream:
        """Open a stream of the changes of a kind's objects; each line is one change in JSON.

        Args:
            since: The resourceVersion after which the changes begin.

        Raises:
            OSError: No answer came.

        """
        query = {"watch": "true", "resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": 3600}
        return self._open_stream(
            self._build_path(api_version, kind, namespace) or "", query, _describe(kind, namespace)
        )

    def follow(self, namespace: str, pod: str, container: str, since: str) -> Stream:
        """Open a stream of a container's log, with the time of each line.

        Args:
            since: The time to start from, as Kubernetes writes it (RFC 3339); empty means the log's beginning.

        Raises:
            OSError: No answer came.

        """
        query = {"container": container, "follow": "true", "timestamps": "true"} | (
            {"sinceTime": since} if since else {}
        )
        return self._open_stream(
            f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query, f"log of pod {namespace}/{pod}"
        )

    def change(
        self, api_version: str, kind: str, name: str, namespace: str, body: Object, subresource: str = ""
    ) -> Object:
        """Apply a strategic merge patch to an object or to one of its subresources; return the result.

        Args:
            body: The patch.
            subresource: The subresource, such as `resize`; empty means the object itself.

        """
        path, description = (
            self._build_path(api_version, kind, namespace, name) or "",
            _describe(kind, namespace, name),
        )
        if subresource:
            path, description = f"{path}/{subresource}", f"{subresource} of {description}"
        return self._send_checked(
            "PATCH", description, path, WRITE_QUERY, body, "application/strategic-merge-patch+json"
        ).json()

    def token(self, namespace: str, account: str, lasts_s: int) -> str:
        """Request a token of a service account that is valid for `lasts_s` seconds, and return the token."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lasts_s},
        }
        answer = self._send_checked("POST", _describe("token of ServiceAccount", namespace, account), path, None, body)
        return str(answer.json()["status"]["token"])

    def evict(self, namespace: str, pod: str) -> str | None:
        """Request the eviction of a pod.

        Returns:
            None if the server evicts the pod; the server's message if a PodDisruptionBudget forbids the eviction.

        """
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        path, description = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", f"eviction of Pod {namespace}/{pod}"
        answer = self._send_checked("POST", description, path, body=body, accepted=(EVICTION_REFUSED,))
        if answer.status != EVICTION_REFUSED:
            return None
        for cause in (answer.json().get("details") or {}).get("causes") or ():
            if cause.get("reason") == "DisruptionBudget":
                return " ".join(str(cause.get("message")).split())
        raise self._parse_fault(answer, "POST", description)

    def apply(self, obj: Mapping[str, Any]) -> Object:
        """Apply an object by server-side apply and return the result.

        The server removes fields that MANAGER applied before and omits now.

        Raises:
            UsageError: The server does not know one of the fields.

        """
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        return self._write("PATCH", obj, query, obj["metadata"]["name"], "application/apply-patch+yaml")

    def create(self, obj: Mapping[str, Any]) -> Object:
        """Create an object and return it; ConflictError when it exists already."""
        return self._write("POST", obj, WRITE_QUERY)

    def replace(self, obj: Mapping[str, Any]) -> Object:
        """Replace an object and return it; ConflictError when it has changed since its resourceVersion."""
        return self._write("PUT", obj, WRITE_QUERY, obj["metadata"]["name"])

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        grace_s: int | None = None,
        orphan: bool = False,
    ) -> bool:
        """Request the deletion of an object; return True if it is gone already, False if it is still ending.

        An object that does not exist counts as gone.

        Args:
            grace_s: The grace period in seconds; None means the one that the object itself states.
            orphan: Whether the objects that the deleted object owns stay; otherwise the server deletes them afterwards.

        """
        path, description = self._build_path(api_version, kind, namespace, name), _describe(kind, namespace, name)
        if path is None:
            return True
        answer = self._send_checked(
            "DELETE", description, path, body=_build_delete_options(grace_s, orphan), accepted=(404,)
        )
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
        """Request the deletion of all objects of a kind with these labels, by one request.

        Args:
            namespace: The namespace to look in; None means all namespaces.
            labels: A label selector.
            grace_s: The grace period in seconds; None means the one that each object states.
            orphan: Whether the objects that a deleted object owns stay; otherwise the server deletes them afterwards.

        """
        if (path := self._build_path(api_version, kind, namespace)) is not None:
            query, description = {"labelSelector": labels}, _describe(kind, namespace)
            self._send_checked(
                "DELETE", description, path, query, _build_delete_options(grace_s, orphan), read_s=60.0
            )  # 1000 Routes took 5 s on an idle disk

    def log(
        self, namespace: str, pod: str, container: str, lines: int, previous: bool = False, times: bool = False
    ) -> str:
        """Return the last lines that a container wrote; empty where it has no log, or none yet.

        Args:
            lines: How many lines.
            previous: Whether to read the log of the container before its last restart.
            times: Whether each line starts with its time.

        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = {"container": container, "tailLines": lines, "previous": str(previous).lower()}
        query |= {"timestamps": "true"} if times else {}
        # 400 and 404: a container that has not started, or is gone.
        answer = self._send_checked("GET", f"log of pod {namespace}/{pod}", path, query, accepted=(400, 404))
        return answer.data.decode(errors="replace") if answer.status < 300 else ""

    def raw(self, path: str) -> Any:
        """Send a GET to a path and return the answer: the parsed JSON, or the text if the answer is no JSON."""
        answer = self._send_checked("GET", path, path)
        try:
            return answer.json()
        except ValueError:
            return answer.data.decode(errors="replace")

    def denied(self, rights: Iterable[tuple[str, str, str, str | None]]) -> list[str]:
        """Return those of the rights that the user does not have, in words such as `list nodes`.

        Args:
            rights: Tuples of (verb, group, resource or resource/subresource, namespace); the namespace None means the
                whole cluster.

        """

        def is_allowed(right: tuple[str, str, str, str | None]) -> bool:
            verb, group, resource, namespace = right
            resource_name, _, subresource = resource.partition("/")
            attributes = {"verb": verb, "group": group, "resource": resource_name, "subresource": subresource}
            spec = {"resourceAttributes": attributes | ({"namespace": namespace} if namespace else {})}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
            return bool(self.create(review)["status"]["allowed"])

        return [
            f"{verb} {resource}{'.' + group if group else ''}{f' in namespace {namespace}' if namespace else ''}"
            for verb, group, resource, namespace in dict.fromkeys(rights)
            if not is_allowed((verb, group, resource, namespace))
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
        description = _describe(kind, namespace, obj.get("metadata", {}).get("name"))
        path = self._build_path(api_version, kind, namespace, name)
        if path is None:
            fault, remedy = f"the cluster knows no {kind} of {api_version}", "install its CustomResourceDefinition"
            raise RefusedError(f"{self.place}: {description}", fault, remedy)
        return self._send_checked(method, description, path, query, obj, content_type).json()

    def _send_checked(
        self,
        method: str,
        description: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accepted: Container[int] = (),
        read_s: float = READ_S,
    ) -> Answer:
        """Send one request and return the answer; raise the error that the status stands for, if it is 300 or above.

        Args:
            description: The object that the request is about, for the error's place.
            accepted: The statuses of 300 and above that raise no error, such as 404 where the object may be missing.
            read_s: The seconds to wait for the answer.

        """
        answer = self.send(method, path, query, body, content_type, read_s, accepted)
        if answer.status < 300 or answer.status in accepted:
            return answer
        raise self._parse_fault(answer, method, description)

    def _open_stream(self, path: str, query: Mapping[str, str | int], description: str) -> Stream:
        answer = self.stream(path, query)
        if not isinstance(answer, Stream):
            raise self._parse_fault(answer, "GET", description)
        return answer

    def _build_path(self, api_version: str, kind: str, namespace: str | None, name: str | None = None) -> str | None:
        resource = self.resource(api_version, kind)
        if resource is None:
            return None
        plural, namespaced = resource
        inner = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{_build_root(api_version)}{inner}/{plural}" + (f"/{name}" if name else "")

    def _parse_fault(self, answer: Answer, method: str, description: str) -> LabError:
        """Return the error that a bad answer stands for, with the server's message."""
        place = f"{self.place}: {description}"
        try:
            message = str(answer.json().get("message") or "").strip()
        except ValueError:
            message = ""
        message = message or answer.data[:300].decode(errors="replace").strip()
        if answer.status == 401:
            fault = f"{method}: the API server does not know you: {message}"
            return DeniedError(place, fault, "log in to the cluster again")
        if answer.status == 403 and (may_not := _MAY_NOT.search(message)):
            fault = f"user {may_not['who']} cannot {may_not['what']}"
            return DeniedError(place, fault, "ask for this right, or name another context")
        if answer.status == 403 and "attempting to grant RBAC permissions" in message:
            return DeniedError(place, message, "ask for the rights that this role grants, or name another context")
        if answer.status == 409:
            return ConflictError(place, message, "try again")
        fault, remedy = f"{method} refused ({answer.status}): {message}", "correct what it names"
        return UsageError(place, fault, remedy) if _UNDECLARED.search(message) else RefusedError(place, fault, remedy)


def _build_root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _describe(kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """Return an object's name for messages, such as `Deployment ingress-lab/proxy`."""
    return " ".join(filter(None, (kind, "/".join(filter(None, (namespace, name))))))


def _build_delete_options(grace_s: int | None, orphan: bool) -> Object:
    policy = "Orphan" if orphan else "Background"
    grace = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    return {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, **grace}
