"""The stand-ins: programs that run on some targets instead of the program that a variant names.

A system's package may have a table of them, `stand_ins.toml`:

    ingress-nginx 1.15.1 on apiserver  →  ingress-nginx 1.11.0 (its Go module of 8 July 2024) on Debian's nginx

A stand-in may have another default for a setting than the named release. The manifests in manifests/base then set the default
of the named release. This module returns the checks that a running system has these values, the differences that no setting
removes, and the settings that the manifests of an older run lack. It reads the tables, and does no other I/O. The keys of a
table:

    shown_by          facts of a run that show that the stand-in ran: name of the fact → regular expression that its value matches
    setting           a setting with another default; a sample counts only if the running system has the named release's default
    flag, key         the setting's flag on the controller's command line, or its key in the ConfigMap that the controller watches
    stand_in, named   the default of the stand-in, and of the named release
    check             a further read-back check of the setting, as in `lab/readback`
    unequal           a difference that no setting removes
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from lab.base.validation import Record, read_toml, refuse_broken_rules, validate_table
from lab.model.variants.knobs import Check
from lab.model.variants.labels import ROLE_LABEL
from lab.systems.table import SYSTEMS, refuse_checks

TABLE = "stand_ins.toml"
Manifests = Sequence[Mapping[str, Any]]


class StandInSetting(Record):
    """A setting whose default differs between a stand-in and the release that the stand-in replaces.

    A stand-in is a program that runs on some targets instead of the one that a variant names. The lab's manifests give the
    setting the default of the replaced release, so that the stand-in behaves like that release.
    """

    flag: str = Field(default="", description="of the controller's command line")
    key: str = Field(default="", description="of the ConfigMap that the controller watches")
    stand_in: str = Field(description="the stand-in's default")
    named: str = Field(description="the named release's default, which the base sets")
    changes: str = Field(description="what it decides, in words")
    costs: str = Field(default="", description="what the stand-in's default costs, with the runs that show it")
    check: Check | None = Field(default=None, description="what else shows it in the running system")

    @model_validator(mode="after")
    def _require_flag_or_key(self) -> Self:
        refuse_broken_rules((bool(self.flag) == bool(self.key), "setting: expected either flag or key"))
        return self

    @property
    def name(self) -> str:
        """The name of a stand-in's setting: its command-line flag, or its key in the ConfigMap.

        A stand-in is a program that runs on some targets instead of the one that a variant names.
        """
        return self.flag or self.key

    @property
    def checks(self) -> tuple[Check, ...]:
        """The read-back checks of a stand-in's setting: whether the running system has the replaced release's default.

        A stand-in is a program that runs on some targets instead of the one that a variant names.
        """
        first = Check(kind="argument" if self.flag else "configmap", name=self.name, value=self.named)
        return (first, self.check) if self.check else (first,)

    def value_in(self, manifests: Manifests) -> str | None:
        """Return the value that rendered manifests give to this setting; None if the manifests do not set it."""
        if self.flag:
            values = list(_flag_values(manifests, self.flag))
        else:
            maps = (obj.get("data") or {} for obj in manifests if obj["kind"] == "ConfigMap")
            values = [str(data[self.key]) for data in maps if self.key in data]
        return values[-1] if values else None


class Inequality(Record):
    """A difference that no setting removes, between a stand-in (a program that replaces another one) and the replaced release."""

    what: str
    why: str


class StandIn(Record):
    """A stand-in: a program that runs on some targets instead of the program whose image a variant names."""

    image: str = Field(
        description="repository of the image that it stands in for: its last parts, without registry and tag"
    )
    targets: tuple[str, ...] = Field(min_length=1)
    named: str = Field(description="the program and release that the image is")
    ran: str = Field(
        description="the program and release that runs; {NAME}: a fact of the run, or a group of `shown_by`"
    )
    other_image: str = Field(
        default="", description="image of another container of the pod, without which it is no stand-in"
    )
    shown_by: dict[str, str] = Field(
        default={},
        description="fact of a run → expression; one that matches shows that it ran. Empty: it always runs there",
    )
    source: str = Field(description="where the defaults were read")
    setting: tuple[StandInSetting, ...] = ()
    unequal: tuple[Inequality, ...] = ()

    @property
    def on(self) -> str:
        """The targets on which a stand-in (a program that replaces another) runs, in words: `local and apiserver`."""
        return " and ".join(self.targets)

    def ran_in(self, target: str, facts: Mapping[str, str]) -> bool:
        """Return whether this stand-in (a program that replaces another one) ran in a run.

        Args:
            target: the run's target.
            facts: the run's facts: name → value.

        """
        return target in self.targets and (bool(self._match(facts)) or not self.shown_by)

    def describe(self, facts: Mapping[str, str]) -> str:
        """Describe in words which program ran in a run, and which release it replaced.

        The table's text for the program may contain names in braces, such as `{nginx}`. Each name is replaced by the
        text of the group of that name in a regular expression of `shown_by` that matches a fact, or else by the run's
        fact of that name.

        Args:
            facts: the run's facts: name → value.

        """
        known = {name: value for match in self._match(facts) for name, value in match.groupdict().items() if value}
        ran = re.sub(" +", " ", self.ran.format_map(defaultdict(str, {**facts, **known}))).strip()
        return f"{ran}, in place of {self.named}{', whose image could not be had' if self.shown_by else ''}"

    def _match(self, facts: Mapping[str, str]) -> list[re.Match[str]]:
        matches = (re.search(form, facts.get(name, "")) for name, form in self.shown_by.items())
        return [match for match in matches if match]


class _Table(Record):
    stand_in: tuple[StandIn, ...]


@cache
def load_stand_ins() -> tuple[StandIn, ...]:
    """Return the stand-ins (programs that replace others on some targets) of all proxy systems.

    They are read from the file `stand_ins.toml` of each system that has one.

    Raises:
        UsageError: when such a file is faulty; the error lists every fault in it.

    """
    stand_ins: list[StandIn] = []
    for system in SYSTEMS:
        path = Path(__file__).parent / system.name.replace("-", "_") / TABLE
        if path.exists():
            place = f"lab/systems/{path.parent.name}/{TABLE}"
            parts = (StandIn, StandInSetting, Inequality)
            table = validate_table(_Table, read_toml(path, place, "git's"), place, place, *parts).stand_in
            refuse_checks(place, (setting.check for stand_in in table for setting in stand_in.setting if setting.check))
            stand_ins += table
    return tuple(stand_ins)


def find_stand_ins(manifests: Manifests, target: str | None = None) -> list[StandIn]:
    """Return the stand-ins for the container images that a variant's proxies run.

    A stand-in is a program that runs on some targets instead of an image's own program.

    Args:
        manifests: the rendered manifests of the variant.
        target: the target on which the stand-ins run; None: any target.

    """
    images = "\n".join(str(container.get("image", "")) for container in _proxy_containers(manifests))

    def runs(repository: str) -> bool:
        return re.search(rf"(^|/){re.escape(repository)}([:@]|$)", images, re.MULTILINE) is not None

    return [
        stand_in
        for stand_in in load_stand_ins()
        if runs(stand_in.image)
        and (not stand_in.other_image or runs(stand_in.other_image))
        and target in (None, *stand_in.targets)
    ]


def list_checks(manifests: Manifests, target: str) -> list[Check]:
    """Return read-back checks that a stand-in really runs with the defaults of the release that it replaces.

    A stand-in is a program that runs on a target instead of the program that the variant names. These checks are added to the
    variant's own checks. A setting to which the variant gives another value is left out, because the variant itself has a check
    for it.

    Args:
        manifests: the rendered manifests of the variant.
        target: the target on which the variant runs.

    """
    return [
        check
        for stand_in in find_stand_ins(manifests, target)
        for setting in stand_in.setting
        if setting.value_in(manifests) in (None, setting.named)
        for check in setting.checks
    ]


def omit_defaults(target: str, facts: Mapping[str, str], manifests: Manifests) -> list[dict[str, Any]]:
    """Return a copy of rendered manifests without those settings for stand-ins that had no effect in a run.

    A stand-in is a program that runs on some targets instead of the program that the manifests name. The manifests set the
    defaults of the named release, for the case that a stand-in runs. If no stand-in ran, these settings changed nothing. So the
    manifests of two runs that differ only in such settings are equal after this function.

    Args:
        target: the run's target.
        facts: the run's facts (name → value), which show whether a stand-in ran.
        manifests: the rendered manifests of one arm (a variant in the run).

    """
    idle = [
        setting
        for stand_in in find_stand_ins(manifests)
        if not stand_in.ran_in(target, facts)
        for setting in stand_in.setting
        if setting.value_in(manifests) == setting.named
    ]
    arguments = {f"{setting.flag}={setting.named}" for setting in idle if setting.flag}
    keys = {setting.key for setting in idle if setting.key}
    reduced = [dict(deepcopy(obj)) for obj in manifests]
    for container in _proxy_containers(reduced):
        for part in ("command", "args"):
            if part in container:
                container[part] = [argument for argument in container[part] if argument not in arguments]
    for obj in reduced:
        if obj["kind"] == "ConfigMap":
            obj["data"] = {key: value for key, value in (obj.get("data") or {}).items() if key not in keys}
    return reduced


def list_programs(target: str, facts: Mapping[str, str], manifests: Mapping[str, Manifests]) -> dict[str, list[str]]:
    """Return the programs that ran as proxies in a run, and for which arms (variants in the run) each of them ran.

    Args:
        target: the run's target.
        facts: the run's facts (name → value), which record the programs' versions.
        manifests: name of an arm → the manifests that were applied.

    Returns:
        Program with its version, in words → names of the arms.

    """
    stood_in = {name: stand_in for stand_in, arms in _list_ran(target, facts, manifests) for name in arms}
    programs: dict[str, list[str]] = {}
    for name, applied in manifests.items():
        if name in stood_in:
            programs.setdefault(stood_in[name].describe(facts), []).append(name)
        for container in _proxy_containers(applied) if name not in stood_in else ():
            programs.setdefault(_describe_image(str(container.get("image", "")), facts), []).append(name)
    return programs


def _describe_image(image: str, facts: Mapping[str, str]) -> str:
    """Return the name and version of the program that ran for a container image in a run, such as `envoy 1.40.0`.

    The run's facts show whether a program ran directly on the machine, or an image that the lab built itself. Without such a
    fact, the name and version come from the image's reference.

    Args:
        image: the reference of the image.
        facts: the run's facts: name → value.

    """
    repository, _, tag = image.partition("@")[0].rpartition(":")
    version = tag.removeprefix("v")
    for program in facts.get("proxies", "").split(", "):
        if program.split(" ")[1:2] == [version]:
            return program
    builds = (re.match(rf"lab/(.*):{re.escape(version)}-", value) for value in facts.values())
    built = next((build[1] for build in builds if build), None)
    name = f"{built or repository.rpartition('/')[2]} {version}"
    return f"{name}, in an image that the lab built" if built else name


def describe_kept_defaults(target: str, facts: Mapping[str, str], manifests: Mapping[str, Manifests]) -> list[str]:
    """Return a warning in words for each setting that a stand-in left at its own default in a run, if that has a known cost.

    A stand-in is a program that runs on some targets instead of the program that a variant names. `list_kept_defaults` finds
    these settings.

    Args:
        target: the run's target.
        facts: the run's facts (name → value), which show whether a stand-in ran.
        manifests: name of an arm (a variant in the run) → the manifests that were applied.

    """
    return [
        f"{', '.join(names)} ran with the stand-in's own default {setting.name}={setting.stand_in}, where {stand_in.named}"
        f" has {setting.named} ({setting.changes}): {setting.costs}"
        for stand_in, setting, names in list_kept_defaults(target, facts, manifests)
    ]


def list_kept_defaults(
    target: str, facts: Mapping[str, str], manifests: Mapping[str, Manifests]
) -> list[tuple[StandIn, StandInSetting, list[str]]]:
    """Return the settings that a stand-in left at its own default in a run, if this default has a known cost.

    A stand-in is a program that runs on some targets instead of the program that a variant names. Its default may cost CPU
    time that the replaced release would not need. A setting is included if that cost is known and the manifests do not set the
    setting.

    Args:
        target: the run's target.
        facts: the run's facts (name → value), which show whether a stand-in ran.
        manifests: name of an arm (a variant in the run) → the manifests that were applied.

    Returns:
        (stand-in, setting, names of the arms whose manifests did not set it) for each such setting.

    """
    return [
        (stand_in, setting, names)
        for stand_in, arms in _list_ran(target, facts, manifests)
        for setting in stand_in.setting
        if setting.costs and (names := [name for name in arms if setting.value_in(manifests[name]) is None])
    ]


def _list_ran(
    target: str, facts: Mapping[str, str], manifests: Mapping[str, Manifests]
) -> Iterator[tuple[StandIn, list[str]]]:
    """Yield each stand-in that ran in a run, with the names of the arms (variants in the run) that used it.

    A stand-in is a program that runs on some targets instead of the program that a variant names.

    Args:
        target: the run's target.
        facts: the run's facts (name → value), which show whether a stand-in ran.
        manifests: name of an arm (a variant in the run) → the manifests that were applied.

    """
    for stand_in in load_stand_ins():
        arms = [name for name, applied in manifests.items() if stand_in in find_stand_ins(applied, target)]
        if arms and stand_in.ran_in(target, facts):
            yield stand_in, arms


def _proxy_containers(manifests: Manifests) -> Iterator[dict[str, Any]]:
    for obj in manifests:
        template = (obj.get("spec") or {}).get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        if obj["kind"] == "Deployment" and labels.get(ROLE_LABEL) == "proxy":
            yield from template["spec"]["containers"]


def _flag_values(manifests: Manifests, flag: str) -> Iterable[str]:
    """Yield the values of a flag on the command lines of the proxy containers, in the order of occurrence.

    Args:
        manifests: the rendered manifests.
        flag: the flag with its dashes; its value follows after `=` or as the next argument.

    """
    for container in _proxy_containers(manifests):
        arguments = [*container.get("command", ()), *container.get("args", ())]
        for argument, following in pairwise([*arguments, ""]):
            name, equals, value = argument.partition("=")
            if name == flag:
                yield value if equals else following
