"""A client for the API server of a Kubernetes cluster: objects are plain dicts, and are addressed by their apiVersion and kind.

The server is queried once per API group for the paths of its kinds. Nothing is guessed: if the server refuses a request, the
error contains the server's message.
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
    """The error for an answer with status 409: another client has created or changed the object in the meantime."""

    exit_status = 1


class DeniedError(UsageError):
    """The error for a request that the API server denies, because the user is unknown (401) or lacks a right (403).

    The message about a missing right contains the user, the verb and the resource.
    """


@contextmanager
def lost_without_right() -> Iterator[None]:
    """Convert a DeniedError (the user lacks a right) raised in the `with` block to a LostError, which stops the run.

    A missing right is not the fault of the measured variant, so the next variant would fail, too. The context manager
    is also used as a decorator of methods that disrupt a system.
    """
    try:
        yield
    except DeniedError as error:
        raise LostError(
            error.place, error.fault, "ask for this right (lab/targets/cluster/README.md names them), then --resume"
        ) from None


def poll_until(ask: Callable[[], T], limit_s: float, poll_s: float) -> T:
    """Call a function again and again until its result is true or the time is over, and return the last result.

    Args:
        ask: The function.
        limit_s: The seconds after which the last result is returned even if it is false.
        poll_s: The seconds between two calls.

    """
    deadline = time.monotonic() + limit_s
    while not (answer := ask()) and time.monotonic() <= deadline:
        time.sleep(poll_s)
    return answer


class RefusedError(MeasuringError):
    """The error for a request that the API server has refused, for example because of an invalid field or a quota."""


class Api(Connection):
    """A client for the API server of one kubeconfig context.

    Every method raises LostError when the server does not answer.

    Raises:
        UsageError: There is no kubeconfig, or the kubeconfig has no such context.

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
        """Return how a kind's objects are addressed: the plural name of the kind, and whether it has namespaces.

        The result is None if the cluster does not know the kind. An example is `Deployment` of `apps/v1` →
        ('deployments', True).
        """
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
        """Return an object; None if it does not exist or the cluster does not know its kind."""
        path = self._build_path(api_version, kind, namespace, name)
        answer = self._send_checked("GET", _describe(kind, namespace, name), path, accepted=(404,)) if path else None
        return None if answer is None or answer.status == 404 else answer.json()

    def list(self, api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        """Return the objects of a kind, each with its apiVersion and kind; empty if the cluster does not know the kind.

        Args:
            api_version: The API group and version, such as `apps/v1`.
            kind: The kind, such as `Deployment`.
            namespace: The namespace to look in; None means all namespaces.
            labels: A label selector; empty selects all objects.

        """
        if self.resource(api_version, kind) is None:
            return []
        items = self.listed(api_version, kind, namespace, labels)[0]
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    def listed(self, api_version: str, kind: str, namespace: str | None, labels: str = "") -> tuple[list[Object], str]:
        """Return the objects of a kind, and the resourceVersion of this list.

        A `watch` from that resourceVersion reports every later change. The cluster must know the kind.

        Args:
            api_version: The API group and version, such as `apps/v1`.
            kind: The kind, such as `Deployment`.
            namespace: The namespace to look in; None means all namespaces.
            labels: A label selector; empty selects all objects.

        """
        path = self._build_path(api_version, kind, namespace) or ""
        answer = self._send_checked(
            "GET", _describe(kind, namespace), path, {"labelSelector": labels} if labels else None
        ).json()
        return answer["items"], str(answer.get("metadata", {}).get("resourceVersion"))

    def watch(self, api_version: str, kind: str, namespace: str, since: str) -> Stream:
        """Open a stream of the changes of a kind's objects in a namespace; each line is one change as JSON.

        Args:
            api_version: The API group and version, such as `apps/v1`.
            kind: The kind, such as `Deployment`.
            namespace: The namespace.
            since: The resourceVersion after which the changes begin.

        Raises:
            OSError: The server does not answer.

        """
        query = {"watch": "true", "resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": 3600}
        return self._open_stream(
            self._build_path(api_version, kind, namespace) or "", query, _describe(kind, namespace)
        )

    def follow(self, namespace: str, pod: str, container: str, since: str) -> Stream:
        """Open a stream of a container's log; each line begins with the time at which it was written.

        Args:
            namespace: The namespace of the pod.
            pod: The name of the pod.
            container: The name of the container.
            since: The time to start from, in Kubernetes' form (RFC 3339); empty means the beginning of the log.

        Raises:
            OSError: The server does not answer.

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
        """Apply a strategic merge patch to an object or to one of its subresources, and return the changed object.

        Args:
            api_version: The API group and version, such as `apps/v1`.
            kind: The kind, such as `Deployment`.
            name: The name of the object.
            namespace: The namespace of the object.
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
        """Request the eviction of a pod, without waiting for the pod's end.

        Returns:
            None if the server accepts the request. If a PodDisruptionBudget forbids the eviction, the server's
            message.

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
        """Create or change an object by server-side apply, and return the object as the server has it.

        The server removes fields that the lab (as field manager MANAGER) applied before and that are missing now.

        Raises:
            UsageError: The server does not know one of the fields.

        """
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        return self._write("PATCH", obj, query, obj["metadata"]["name"], "application/apply-patch+yaml")

    def create(self, obj: Mapping[str, Any]) -> Object:
        """Create an object and return it as the server has it.

        Raises:
            ConflictError: The object exists already.

        """
        return self._write("POST", obj, WRITE_QUERY)

    def replace(self, obj: Mapping[str, Any]) -> Object:
        """Replace an object, and return it as the server has it.

        Raises:
            ConflictError: The object has changed since the resourceVersion that `obj` contains.

        """
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
        """Request the deletion of an object, and return whether it is gone already (True) or is still ending (False).

        An object that does not exist counts as gone.

        Args:
            api_version: The API group and version, such as `apps/v1`.
            kind: The kind, such as `Deployment`.
            name: The name of the object.
            namespace: The namespace of the object; None for a kind without namespaces.
            grace_s: The grace period in seconds; None means the one in the object's own spec.
            orphan: Whether objects that the deleted object owns (such as a Deployment's pods) stay. If not, the server
                deletes them afterwards.

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
        """Request the deletion of all objects of a kind that have certain labels, by a single request.

        Args:
            api_version: The API group and version, such as `apps/v1`.
            kind: The kind, such as `Deployment`.
            namespace: The namespace to look in; None means all namespaces.
            labels: A label selector.
            grace_s: The grace period in seconds; None means the one in each object's own spec.
            orphan: Whether objects that a deleted object owns (such as a Deployment's pods) stay. If not, the server
                deletes them afterwards.

        """
        if (path := self._build_path(api_version, kind, namespace)) is not None:
            query, description = {"labelSelector": labels}, _describe(kind, namespace)
            self._send_checked(
                "DELETE", description, path, query, _build_delete_options(grace_s, orphan), read_s=60.0
            )  # 1000 Routes took 5 s on an idle disk

    def log(
        self, namespace: str, pod: str, container: str, lines: int, previous: bool = False, times: bool = False
    ) -> str:
        """Return the last lines of a container's log, as text; empty if the container has no log (yet).

        Args:
            namespace: The namespace of the pod.
            pod: The name of the pod.
            container: The name of the container.
            lines: The number of lines.
            previous: Whether to read the log of the container before its last restart.
            times: Whether each line starts with the time at which it was written.

        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = {"container": container, "tailLines": lines, "previous": str(previous).lower()}
        query |= {"timestamps": "true"} if times else {}
        # 400 and 404: a container that has not started, or is gone.
        answer = self._send_checked("GET", f"log of pod {namespace}/{pod}", path, query, accepted=(400, 404))
        return answer.data.decode(errors="replace") if answer.status < 300 else ""

    def raw(self, path: str) -> Any:
        """Send a GET for a path and return the parsed JSON of the answer; if the answer is no JSON, its text."""
        answer = self._send_checked("GET", path, path)
        try:
            return answer.json()
        except ValueError:
            return answer.data.decode(errors="replace")

    def denied(self, rights: Iterable[tuple[str, str, str, str | None]]) -> list[str]:
        """Return which of these rights the user does not have, as texts such as `list nodes in namespace default`.

        Args:
            rights: Tuples of (verb, API group, resource or resource/subresource, namespace). None in place of a
                namespace means the whole cluster.

        """

        def is_allowed(verb: str, group: str, resource: str, namespace: str | None) -> bool:
            resource_name, _, subresource = resource.partition("/")
            attributes = {"verb": verb, "group": group, "resource": resource_name, "subresource": subresource}
            spec = {"resourceAttributes": attributes | ({"namespace": namespace} if namespace else {})}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
            return bool(self.create(review)["status"]["allowed"])

        return [
            f"{verb} {resource}{'.' + group if group else ''}{f' in namespace {namespace}' if namespace else ''}"
            for verb, group, resource, namespace in dict.fromkeys(rights)
            if not is_allowed(verb, group, resource, namespace)
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
        """Send one request and return the answer; raise an error if the status of the answer is 300 or above.

        Args:
            method: The HTTP method.
            description: The name of the object that the request is about, for the error's text.
            path: The path.
            query: The parameters of the query; None = none.
            body: The body, which is sent as JSON; None sends none.
            content_type: The content type of the body.
            accepted: The statuses of 300 and above that raise no error, such as 404 if the object may be missing.
            read_s: The seconds to wait for the answer.

        """
        answer = self.send(method, path, query, body, content_type, read_s, accepted)
        if answer.status < 300 or answer.status in accepted:
            return answer
        raise self._parse_fault(answer, method, description)

    def _open_stream(self, path: str, query: Mapping[str, str | int], description: str) -> Stream:
        answer = self.stream(path, query)
        if answer.status >= 300:
            raise self._parse_fault(answer, "GET", description)
        return Stream(answer)

    def _build_path(self, api_version: str, kind: str, namespace: str | None, name: str | None = None) -> str | None:
        resource = self.resource(api_version, kind)
        if resource is None:
            return None
        plural, namespaced = resource
        inner = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{_build_root(api_version)}{inner}/{plural}" + (f"/{name}" if name else "")

    def _parse_fault(self, answer: Answer, method: str, description: str) -> LabError:
        """Return the exception to raise for an answer with a bad status; it contains the server's message.

        Args:
            answer: The answer.
            method: The HTTP method of the request.
            description: The name of the object that the request is about.

        """
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
    """Return an object's name for messages: kind, namespace and name, such as `Deployment ingress-lab/proxy`."""
    return " ".join(filter(None, (kind, "/".join(filter(None, (namespace, name))))))


def _build_delete_options(grace_s: int | None, orphan: bool) -> Object:
    policy = "Orphan" if orphan else "Background"
    grace = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    return {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, **grace}
