"""The model of knobs (single settings): each is a kustomize Component, whose annotations describe it completely.

    metadata:
      annotations:
        lab/title: net.core.somaxconn 128
        lab/readback: |
          - {kind: sysctl, name: net.core.somaxconn, value: 128}

Unknown annotations, sweeps that do not exist, and patches that kustomize would silently drop are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lab.base.errors import UsageError, refuse_if, refuse_unknown
from lab.base.validation import Record, refuse_broken_rules
from lab.model import sweeps
from lab.model.metrics import Primary
from lab.model.variants import annotations as annotated
from lab.model.variants import openshift

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"

# No namePrefix, commonLabels, patchesJson6902 …: their effect is mixed with a knob's change, or fails silently.
KEYS = {"resources", "configMapGenerator", "patches", "replacements", "transformers"}
"""The keys that a component's kustomization.yaml may have in addition to apiVersion, kind and metadata."""


CostPlace = Literal["process", "shared"]
"""The place of a knob's cost: in the process, so that a pair shows it completely, or also in what a pair shares."""


class Check(Record, coerce_numbers_to_str=True):
    """A read-back: a check that the running system has a certain value before it is measured.

    The value that is read depends on `kind`, and is compared with `value`:

        sysctl      /proc/sys in the pod's network namespace (`name`)
        backlog     the accept queue length of the listening socket on `port`, from `ss -lnt`
        limit       a soft limit of every process whose title starts with `process` (`name`: a row of /proc/PID/limits)
        processes   the number of processes whose title starts with `process`
        affinity    the CPUs that the processes whose title starts with `process` may use, one entry per process, sorted
        environment an environment variable (`name`) of the container's main process
        quota       a limit of the container (`name`: cpu or memory; value as in Kubernetes, `200m`), from its cgroup
        ports       the range of local ports (`1024 65000`) that outgoing connections use; connections are really made
        entry       the address that load is sent to: `pod` if it is that of the role's first pod itself, else the address
        node        a setting of the whole node (`name`: a sysctl, `irqbalance`, `irq-affinity`), read on the node
        rps         the CPUs to which receive packet steering spreads each queue of the pod's interfaces (`own` = the pod's CPUs)
        page        the rest of a line that a proxy's status page shows on `port` of its pod's loopback (`name`: the page's path, a space,
                    and the beginning of the line); `absent` without such a line
        argument    an option (`name`: `--concurrency`) of the command line of the container's main process; `absent` without it
        configmap   a key (`name`) of the ConfigMap that the proxy's controller was started with, as the API server has it; `absent` without it
        pod         a field of the running pod (`name`: a path such as `spec.containers[proxy].livenessProbe.timeoutSeconds`)
        pods        the number of pods of the role that run and are ready
        budget      a number (`name`: minAvailable or maxUnavailable) of the PodDisruptionBudgets in force over the role's pods
        echo        a header (`name`) as it reaches the backend, for a request that seems to have passed two proxies (`context`: its further
                    headers); `client` is the address of the connection's client, `balancer` that of the load balancer
        routes      the number of routes that answer, each under its host
        shards      the number of proxies that share the routes, each of which answers for its hosts only
        tls         the result of a client's handshake on every host (`name`: version or cipher, in OpenSSL's words, group or key: X25519, `RSA 2048`)
        termination the place where TLS ends, from the certificate that a client sees and from what reaches the backend
        disk        the way in which the filesystem under a container's path (`name`) writes: `memory`, `buffered` or `sync`

    Any other kind belongs to one proxy system. The system's package in `lab.systems` defines what `name` means, and
    whether the check has further keys: `context`, `among` (one of several values is enough) or `times` (the number of
    occurrences). `lab.systems.table.refuse_checks` refuses unknown kinds.
    """

    KINDS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "sysctl": ("name", "sysctl {name} in the pod"),
        "backlog": ("port", "accept queue of the socket on port {port}"),
        "limit": ("name process", "{name} of every process '{process}'"),
        "processes": ("process", "number of processes '{process}'"),
        "affinity": ("process", "CPUs of every process '{process}'"),
        "environment": ("name", "{name} in the container's environment"),
        "quota": ("name", "{name} limit of the container's cgroup"),
        "ports": ("", "local ports of outgoing connections"),
        "entry": ("", "whose address load is sent to"),
        "node": ("name", "the node's {name}"),
        "rps": ("", "CPUs that receive packet steering spreads to"),
        "page": ("name port", "port {port}: {name}"),
        "argument": ("name", "{name} on the command line"),
        "configmap": ("name", "{name} in the ConfigMap that its controller watches"),
        "pod": ("name", "the running pod's {name}"),
        "pods": ("", "ready pods"),
        "budget": ("name", "budget: {name}"),
        "echo": ("name", "{name} as it reaches the backend"),
        "routes": ("", "routes that answer"),
        "termination": ("", "where TLS ends"),
        "tls": ("name", "{name} that a TLS handshake comes to"),
        "shards": ("", "shards: {name}"),
        "disk": ("name", "how {name} is written"),
    }
    """The keys that each kind needs besides kind, role and value, and its description; `echo` may have a context."""

    kind: str = Field(pattern=r"^[a-z][a-z-]*$", description="of those above, or a proxy system's own")
    value: str = Field(min_length=1)
    role: Literal["proxy", "backend", "balancer"] = "proxy"
    name: str | None = None
    context: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    process: str | None = None
    among: bool | None = None
    times: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        needed = set(self.KINDS.get(self.kind, ("name", ""))[0].split())
        possible = {"context"} if self.kind == "echo" else set[str]()
        if self.kind not in self.KINDS:  # a kind of one system
            possible = {"context", "among", "times"}
        keys = ("name", "context", "port", "process", "among", "times")
        present = {key for key in keys if getattr(self, key) is not None}
        missing, extra = sorted(needed - present), sorted(present - needed - possible)
        refuse_broken_rules(
            (bool(missing), f"readback: a check of kind '{self.kind}' needs {' and '.join(missing)}"),
            (bool(extra), f"readback: a check of kind '{self.kind}' has no {' or '.join(extra)}"),
        )
        return self

    @property
    def subject(self) -> tuple[object, ...]:
        """The key of the setting that this check reads. Two checks with equal keys must expect equal values."""
        counted = None if self.times is None else self.value
        return (self.kind, self.role, self.name, self.context, self.port, self.process, counted)


class Knob(Record):
    """A knob: one setting that can be added to a variant, as described by the annotations of its kustomize component.

    Each field is read from the annotation `lab/FIELD`, unless it is the folder's name.
    """

    name: str = Field(description="the component's folder", json_schema_extra=annotated.NOT_AN_ANNOTATION)
    title: str = Field(min_length=1, description="what it sets, and what was set before")
    study: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$", description="the key of the study that names it")
    parameters: tuple[str, ...] = Field(
        default=(),
        description="rows of data/published/parameters.csv that it realises: YAML text, a list of STUDY/PARAMETER",
    )
    published: str | None = Field(default=None, description="the published value, in the study's words")
    hypothesis: str = Field(
        min_length=20,
        pattern=r"\w\W+\w",
        description="one falsifiable sentence: what changes, under which load, in which direction",
    )
    sweep: str = Field(description="the sweep in which an effect could show")
    primary_metric: Primary = Field(description="the one metric that may claim in the summary line")
    cost: CostPlace = Field(
        default="shared",
        description="where its cost can lie: in the process, so that a pair shows it whole; or also in what a pair shares or halves"
        " (connections' state in the kernel, ports, TIME-WAIT, queues, files, disk, memory), so that it is measured alone as well",
    )
    only_on: str = Field(
        default="", description="the targets that have what it sets, with blanks between; empty = every one"
    )
    on: str = Field(
        default="",
        description="the variants on which it is listed as one more, PARENT+COMPONENT, with blanks between; empty = it belongs to"
        " compositions alone, or goes on any variant that it fits",
    )
    dose: float | None = Field(
        default=None,
        gt=0,
        description="units of a known cost that it adds: `selfbench` holds what is measured against them",
    )
    needs: str | None = Field(
        default=None,
        min_length=20,
        description="what has to happen during the load for an effect to show, and no sweep does yet",
    )
    only_to_measure_by: str | None = Field(
        default=None,
        min_length=20,
        description="what is learnt by it, of what nobody should apply: no verdict ends in applying it",
    )
    readback: tuple[Check, ...] = Field(
        min_length=1, description="how to see that it took: YAML text, a list of checks"
    )
    openshift: tuple[dict[str, Any], ...] = Field(
        default=(),
        description="what sets the same where OpenShift's ingress operator owns the router: YAML text, a list of patches",
    )


def knob_names(manifests: Path = MANIFESTS) -> list[str]:
    """Return the names of all knobs (single settings), which are the folders in `components`."""
    return annotated.list_folders(manifests / annotated.COMPONENTS)


def load_knob(name: str, manifests: Path = MANIFESTS) -> Knob:
    """Read the annotations of one knob (a setting, as a kustomize component) and check them.

    Args:
        name: The name of the component's folder.
        manifests: The folder of the manifests.

    Raises:
        UsageError: There is no such component, or its file is faulty. The message has file, key and remedy.

    """
    refuse_unknown(name, knob_names(manifests), "variant", f"unknown knob '{name}'")
    folder = manifests / annotated.COMPONENTS / name
    place = annotated.describe_file(folder)
    content, values = annotated.read(folder, Knob, KEYS)
    values["openshift"] = openshift.check_patches(values.get("openshift", ()), f"{place}: lab/openshift")
    knob = annotated.validate_annotations(Knob, {"name": name, **values}, place, Check)
    refuse_unknown(knob.sweep, sweeps.sweep_names(), place, f"lab/sweep: unknown sweep '{knob.sweep}'")
    if len({check.subject for check in knob.readback}) < len(knob.readback):
        raise UsageError(place, "lab/readback: two checks read the same thing", "keep one")
    parse_patch_targets(content, place)
    for generator in content.get("configMapGenerator", []):
        fault = f"configMapGenerator.{generator.get('name')}: expected `behavior: merge`"
        remedy = "a new ConfigMap belongs into resources; nothing reads a generated one by itself"
        refuse_if(generator.get("behavior") != "merge", place, fault, remedy)
    return knob


@dataclass(frozen=True, slots=True)
class PatchTarget:
    """The target of a kustomize patch: one object by kind and name, or all objects of a kind that have certain labels.

    `labels` is a selector of one of the forms `key`, `key=value` and `key in (value, value)`; empty = by name.
    """

    kind: str
    name: str = ""
    labels: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else f"{self.kind} with {self.labels}"

    def means(self, obj: Mapping[str, Any]) -> bool:
        """Return whether a patch with this target applies to a Kubernetes object."""
        metadata, form = obj.get("metadata", {}), _SELECTOR.fullmatch(self.labels)
        if obj.get("kind") != self.kind or form is None:
            return obj.get("kind") == self.kind and metadata.get("name") == self.name
        value, allowed = metadata.get("labels", {}).get(form["key"]), form["one"] or form["any"]
        return value is not None and (allowed is None or value in allowed.replace(" ", "").split(","))


_SELECTOR = re.compile(r"(?P<key>[\w./-]+)(?:=(?P<one>[\w.-]+)| in \((?P<any>[\w.-]+(?:, ?[\w.-]+)*)\))?")


def parse_patch_targets(content: dict[str, Any], place: str) -> list[PatchTarget]:
    """Return the explicit targets of the patches in a kustomization.yaml, and check that each is exact.

    A target must be exact, because kustomize silently drops a patch that matches nothing.

    Args:
        content: The content of the file.
        place: The file's name for the error message.

    Raises:
        UsageError: A target is neither an exact kind and name, nor a kind and a selector of labels.

    """
    patch_targets: list[PatchTarget] = []
    for patch in content.get("patches", []):
        target = patch.get("target")
        if target is None:
            continue
        keys = set(target) - {"group", "version"} if isinstance(target, dict) else set[str]()
        by_name = keys == {"kind", "name"} and all(str(target[key]).replace("-", "").isalnum() for key in keys)
        by_labels = keys == {"kind", "labelSelector"} and str(target["kind"]).isalnum()
        if not by_name and not (by_labels and _SELECTOR.fullmatch(str(target["labelSelector"]))):
            raise UsageError(
                place,
                f"patches.target: expected an exact kind and name, got {target!r}",
                "as in {kind: Deployment, name: proxy}; for many objects, {kind: Route, labelSelector: KEY},"
                " KEY=VALUE or KEY in (VALUE, VALUE)",
            )
        patch_targets.append(PatchTarget(target["kind"], target.get("name", ""), str(target.get("labelSelector", ""))))
    return patch_targets
