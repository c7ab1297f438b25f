"""A knob on OpenShift itself, where the ingress operator owns the router: `openshift.yaml` beside a component's patch.yaml.

    apiVersion: operator.openshift.io/v1
    kind: IngressController                        →  oc -n openshift-ingress-operator patch ingresscontroller/default
    metadata: {name: default, namespace: …}               --type=merge -p '{"spec":{"tuningOptions":{"threadCount":4}}}'
    spec: {tuningOptions: {threadCount: 4}}

Fields and bounds are those of the operator's own API (openshift/api, operator/v1/types_ingresscontroller.go), as far as
knobs use them; anything else is refused. Two deviations: a reload interval beyond the bounds, which OpenShift caps without a
word, is refused, and a Deployment's patch may hold probe timeouts (openshift/enhancements, tunable-router-kubelet-probes) and
a CPU limit only: the operator leaves those as they are (openshift/cluster-ingress-operator 015e6d6, deployment.go), and
reverts most of what else is changed there. An IngressController of another name than `default` is a router of its own, which
the operator makes: it needs a `domain`, and is applied, not patched.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from lab.base import quantities
from lab.base.errors import UsageError
from lab.base.validation import Record, faults

FILE = "openshift.yaml"
DEFAULT = "default"
"""The IngressController that every OpenShift has."""
RELOADS_S = (1, 120)
FOOTNOTE = "for OpenShift, as its operator's API has it; not run on OpenShift by this project"


class _Part(Record, alias_generator=to_camel, strict=True):
    """Of a patch: its keys are spelled as Kubernetes does."""


class TuningOptions(_Part):
    thread_count: int | None = Field(default=None, ge=1, le=64)
    reload_interval: str | None = Field(default=None, description="1s to 120s")
    max_connections: int | None = Field(
        default=None, description="-1 (auto), 0 (the default, 50000) or 2000 to 2000000"
    )

    @model_validator(mode="after")
    def _bounds(self) -> TuningOptions:
        low, high = RELOADS_S
        if self.reload_interval is not None:
            seconds = quantities.seconds(self.reload_interval)
            if seconds is None or not low <= seconds <= high:
                raise ValueError(
                    f"spec.tuningOptions.reloadInterval: expected {low}s to {high}s, got {self.reload_interval!r}"
                )
        count = self.max_connections
        if count is not None and count not in (-1, 0) and not 2000 <= count <= 2_000_000:
            raise ValueError(f"spec.tuningOptions.maxConnections: expected -1, 0 or 2000 to 2000000, got {count}")
        return self


class EndpointPublishingStrategy(_Part):
    """`loadBalancer: null` takes away what a strategy of before may have left; the type is all there is to HostNetwork."""

    type: Literal["HostNetwork"]
    load_balancer: None = None


class RouteSelector(_Part):
    """Which Routes it serves; all without it."""

    match_labels: dict[str, str] = Field(min_length=1)


class IngressControllerSpec(_Part):
    domain: str | None = Field(default=None, min_length=1, description="of a further router only")
    route_selector: RouteSelector | None = None
    tuning_options: TuningOptions | None = None
    endpoint_publishing_strategy: EndpointPublishingStrategy | None = None


class _OperatorPlace(_Part):
    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
    namespace: Literal["openshift-ingress-operator"]


class IngressController(_Part):
    api_version: Literal["operator.openshift.io/v1"]
    kind: Literal["IngressController"]
    metadata: _OperatorPlace
    spec: IngressControllerSpec

    @model_validator(mode="after")
    def _own_domain(self) -> IngressController:
        if (self.metadata.name == DEFAULT) != (self.spec.domain is None):
            raise ValueError(
                f"spec.domain: every IngressController but {DEFAULT!r} needs one of its own, and only those"
            )
        return self


class Timeout(_Part):
    timeout_seconds: int = Field(ge=1)


class Limits(_Part):
    cpu: str = Field(pattern=r"^([1-9]\d*m?|0\.\d*[1-9]\d*)$", description="CPUs, or thousandths of one: 150m")


class Resources(_Part):
    limits: Limits


class RouterContainer(_Part):
    name: Literal["router"]
    resources: Resources | None = None
    liveness_probe: Timeout | None = None
    readiness_probe: Timeout | None = None


class _PodSpec(_Part):
    containers: list[RouterContainer] = Field(min_length=1, max_length=1)


class _Template(_Part):
    spec: _PodSpec


class _DeploymentSpec(_Part):
    template: _Template


class _RouterPlace(_Part):
    name: Literal["router-default"]
    namespace: Literal["openshift-ingress"]


class Deployment(_Part):
    api_version: Literal["apps/v1"]
    kind: Literal["Deployment"]
    metadata: _RouterPlace
    spec: _DeploymentSpec


Patch = Annotated[IngressController | Deployment, Field(discriminator="kind")]
_PATCH: TypeAdapter[IngressController | Deployment] = TypeAdapter(Patch)
_PARTS = (
    IngressController,
    IngressControllerSpec,
    RouteSelector,
    TuningOptions,
    EndpointPublishingStrategy,
    RouterContainer,
    Resources,
    Limits,
    Timeout,
)
"""Among whose keys the nearest known one is looked for."""


def read(folder: Path, where: str) -> tuple[dict[str, Any], ...]:
    """The patches in a component's file, checked; none where there is no file. UsageError with file, key and remedy."""
    try:
        text = (folder / FILE).read_text()
    except FileNotFoundError:
        return ()
    place = str(Path(where).with_name(FILE))
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise UsageError(place, f"not YAML: {' '.join(str(error).split())}", "see a folder beside it") from None
    found = [_checked(document, place) for document in documents]
    if not found:
        raise UsageError(place, "holds no patch", "write one, or remove the file")
    return tuple(found)


def commands(patches: Iterable[Mapping[str, Any]]) -> list[str]:
    """The `oc` commands that apply these patches, those for one object as one. UsageError when two say different things."""
    merged: dict[str, dict[str, Any]] = {}
    further: list[Mapping[str, Any]] = []
    for patch in patches:
        kind = str(patch["kind"])
        if "domain" in patch["spec"]:
            further.append(patch)
        else:
            merged[kind] = _merge(merged.get(kind, {}), {"spec": patch["spec"]}, kind)
    found: list[str] = []
    for controller in further:
        found.append(f"# a router of its own; in the place of {controller['spec']['domain']}, a domain of yours:")
        found.append(f"oc apply -f - <<<{shlex.quote(json.dumps(controller, separators=(',', ':')))}")
    if controller := merged.get("IngressController"):
        said = shlex.quote(json.dumps(controller, separators=(",", ":")))
        place = "oc -n openshift-ingress-operator"
        if "endpointPublishingStrategy" in controller["spec"]:
            found += [
                "# the type of endpoint publishing cannot be updated: the IngressController is made anew, and nothing is served meanwhile",
                f"{place} get ingresscontroller/default -o json |"
                f" oc patch --local -f - --type=merge -p {said} -o json | oc replace --force --wait -f -",
            ]
        else:
            found.append(f"{place} patch ingresscontroller/default --type=merge -p {said}")
    if deployment := merged.get("Deployment"):
        said = shlex.quote(json.dumps(deployment, separators=(",", ":")))
        found += ["# when the new router is there:"] if len(found) > 1 else []
        found.append(f"oc -n openshift-ingress patch deployment/router-default --type=strategic -p {said}")
    return found


def snippet(patches: Sequence[Mapping[str, Any]]) -> str:
    """What to run on OpenShift, as a shell takes it; empty without patches."""
    return "".join(f"{line}\n" for line in (f"# {FOOTNOTE}", *commands(patches))) if patches else ""


def _checked(document: object, place: str) -> dict[str, Any]:
    """As it will be sent: the file's own keys, no defaults."""
    try:
        patch = _PATCH.validate_python(document)
    except ValidationError as error:
        remedy = "lab/model/variants/openshift.py has the fields and their bounds: a new one comes there with its own"
        told = faults(error, *_PARTS, tags=("IngressController", "Deployment"))
        raise UsageError(place, "; ".join(told), remedy) from None
    return patch.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _merge(one: Mapping[str, Any], other: Mapping[str, Any], place: str) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        here = f"{place}.{key}"
        if key not in merged or merged[key] == value:
            merged[key] = value
        elif isinstance(value, Mapping):
            merged[key] = _merge(merged[key], value, here)
        elif isinstance(value, list):  # the one container
            merged[key] = [_merge(merged[key][0], value[0], f"{here}[0]")]
        else:
            raise UsageError(here, f"set to {merged[key]!r} and to {value!r}", "keep one of the knobs")
    return merged
