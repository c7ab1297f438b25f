"""Knobs: one kustomize Component each, with all that is known about it in its annotations.

    metadata:
      annotations:
        lab/title: net.core.somaxconn 128
        lab/readback: |
          - {kind: sysctl, name: net.core.somaxconn, value: 128}

Refuses annotations it does not know, sweeps that do not exist, and patches that kustomize would drop without a word.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from lab import annotated, sweeps
from lab.errors import UsageError, did_you_mean

MANIFESTS = Path(__file__).resolve().parents[1] / "manifests"

# No namePrefix, commonLabels, patchesJson6902 …: what they do cannot be told from a knob's own change, or fails silently.
KEYS = {"resources", "configMapGenerator", "patches", "replacements", "transformers"}
"""What a component's kustomization.yaml may hold beside apiVersion, kind and metadata."""

Metric = Literal["rate", "cpu_per_request", "p50", "p90", "p99", "p99.9", "errors"]


class Check(BaseModel):
    """One read-back: what must be found in the running system before a sample counts.

    kind        what is compared with `value`
    nginx       a directive's arguments in the parsed `nginx -T` (`name`; `context` such as `http/server` if it stands in several)
    sysctl      /proc/sys in the pod's network namespace (`name`)
    backlog     the accept queue length of the listening socket on `port`, from `ss -lnt`
    limit       a soft limit of every process whose title starts with `process` (`name`: a row of /proc/PID/limits)
    processes   how many processes have a title that starts with `process`
    """

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    KEYS: ClassVar[dict[str, tuple[set[str], set[str]]]] = {
        "nginx": ({"name"}, {"context"}),
        "sysctl": ({"name"}, set()),
        "backlog": ({"port"}, set()),
        "limit": ({"name", "process"}, set()),
        "processes": ({"process"}, set()),
    }
    """kind → the keys it needs and the keys it may have, beside kind, role and value."""

    kind: Literal["nginx", "sysctl", "backlog", "limit", "processes"]
    value: str = Field(min_length=1)
    role: Literal["proxy", "backend"] = "proxy"
    name: str | None = None
    context: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    process: str | None = None

    @model_validator(mode="after")
    def _keys_of_kind(self) -> Self:
        needed, possible = self.KEYS[self.kind]
        given = {key for key in ("name", "context", "port", "process") if getattr(self, key) is not None}
        if missing := sorted(needed - given):
            raise ValueError(f"readback: a check of kind '{self.kind}' needs {' and '.join(missing)}")
        if extra := sorted(given - needed - possible):
            raise ValueError(f"readback: a check of kind '{self.kind}' has no {' or '.join(extra)}")
        return self

    @property
    def subject(self) -> tuple[object, ...]:
        """What it reads: two checks of one subject can hold together only with one value."""
        return (self.kind, self.role, self.name, self.context, self.port, self.process)


class Knob(BaseModel):
    """One component's annotations (`metadata.annotations`, each key under `lab/`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="the component's folder", json_schema_extra=annotated.NOT_AN_ANNOTATION)
    title: str = Field(min_length=1, description="what it sets, and what was set before")
    study: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$", description="the key of the study that names it")
    published: str | None = Field(default=None, description="the published value, in the study's words")
    hypothesis: str = Field(
        min_length=20, description="one falsifiable sentence: what changes, under which load, in which direction"
    )
    sweep: str = Field(description="the sweep in which an effect could show")
    primary_metric: Metric = Field(description="the one metric that may claim in the summary line")
    readback: tuple[Check, ...] = Field(
        min_length=1, description="how to see that it took: YAML text, a list of checks"
    )


def knob_names(manifests: Path = MANIFESTS) -> list[str]:
    """The components' folders."""
    return annotated.folders(manifests / "components")


def load_knob(name: str, manifests: Path = MANIFESTS) -> Knob:
    """One component's annotations, checked. UsageError with file, key and remedy."""
    if name not in knob_names(manifests):
        raise UsageError("variant", f"unknown knob '{name}'", did_you_mean(name, knob_names(manifests)))
    folder = manifests / "components" / name
    where = annotated.place(folder)
    content = annotated.kustomization(folder, "Component", KEYS)
    values = annotated.values(content, Knob, where)
    values["readback"] = _checks(values["readback"], where)
    knob = annotated.validated(Knob, {"name": name, **values}, where, Check)
    if knob.sweep not in sweeps.sweep_names():
        raise UsageError(
            where, f"lab/sweep: unknown sweep '{knob.sweep}'", did_you_mean(knob.sweep, sweeps.sweep_names())
        )
    subjects = [check.subject for check in knob.readback]
    if len(set(subjects)) < len(subjects):
        raise UsageError(where, "lab/readback: two checks read the same thing", "keep one")
    targets(content, where)
    for generator in content.get("configMapGenerator", []):
        if generator.get("behavior") != "merge":
            fault = f"configMapGenerator.{generator.get('name')}: expected `behavior: merge`"
            raise UsageError(
                where, fault, "a new ConfigMap belongs into resources; nothing reads a generated one by itself"
            )
    return knob


def targets(content: dict[str, Any], where: str) -> list[str]:
    """`Deployment/proxy` of every patch that has a target. It must be exact: kustomize drops a patch that matches nothing."""
    found: list[str] = []
    for patch in content.get("patches", []):
        target = patch.get("target")
        if target is None:
            continue
        named = isinstance(target, dict) and {"kind", "name"} <= set(target) <= {"group", "version", "kind", "name"}
        if not named or not all(str(target[key]).replace("-", "").isalnum() for key in ("kind", "name")):
            raise UsageError(
                where,
                f"patches.target: expected an exact kind and name, got {target!r}",
                "as in {kind: Deployment, name: proxy}",
            )
        found.append(f"{target['kind']}/{target['name']}")
    return found


def _checks(text: str, where: str) -> list[Any]:
    form = "write a list, as in - {kind: sysctl, name: net.core.somaxconn, value: 128}"
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(where, f"lab/readback: not YAML: {' '.join(str(error).split())}", form) from None
    if not isinstance(found, list) or not found:
        raise UsageError(where, f"lab/readback: expected a list of checks, got {found!r}", form)
    return found
