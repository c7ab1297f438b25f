"""An API server in memory, as far as the lab's own logic goes: what `lab.targets.cluster.api.Api` shows of one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from lab.targets.cluster.api import ConflictError

Object = dict[str, Any]
Key = tuple[str, str, str]  # kind, namespace, name
CLUSTER_SCOPED = {"Namespace", "ClusterRole", "ClusterRoleBinding", "IngressClass", "CustomResourceDefinition", "Node"}


class FakeApi:
    """`asked`: what changes something, in order. `before` is called ahead of every write. `refused`: kinds that may not be listed."""

    place = "context test"

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.asked: list[str] = []
        self.logs: dict[str, str] = {}
        self.refused: dict[str, Exception] = {}
        self.before: Callable[[str, Key], None] = lambda verb, key: None
        self._version = 0

    def put(self, obj: Mapping[str, Any]) -> Object:
        self._version += 1
        stored = copy.deepcopy(dict(obj))
        stored["metadata"]["resourceVersion"] = str(self._version)
        self.objects[_key(obj)] = stored
        return copy.deepcopy(stored)

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        return copy.deepcopy(self.objects.get((kind, namespace or "", name)))

    def list(self, api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        if kind in self.refused:
            raise self.refused[kind]
        return [
            copy.deepcopy(obj)
            for (found, place, _), obj in self.objects.items()
            if found == kind and namespace in (None, place) and _selected(obj, labels)
        ]

    def apply(self, obj: Mapping[str, Any]) -> Object:
        self._ask("apply", _key(obj))
        return self.put(obj)

    def create(self, obj: Mapping[str, Any]) -> Object:
        self._ask("create", _key(obj))
        if _key(obj) in self.objects:
            raise ConflictError(self.place, "already exists")
        return self.put(obj)

    def replace(self, obj: Mapping[str, Any]) -> Object:
        self._ask("replace", _key(obj))
        found = self.objects.get(_key(obj))
        if found is None or found["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise ConflictError(self.place, "the object has been modified")
        return self.put(obj)

    def delete(
        self, api_version: str, kind: str, name: str, namespace: str | None = None, grace_s: int | None = None, **_: Any
    ) -> bool:
        key = (kind, namespace or "", name)
        self._ask("delete" + (f"({grace_s})" if grace_s is not None else ""), key)
        self.objects.pop(key, None)
        if kind == "Namespace":
            self.objects = {held: obj for held, obj in self.objects.items() if held[1] != name}
        return True

    def delete_all(self, api_version: str, kind: str, namespace: str | None, labels: str, *_: Any, **__: Any) -> None:
        for obj in self.list(api_version, kind, namespace, labels):
            self.objects.pop(_key(obj))

    def change(
        self, api_version: str, kind: str, name: str, namespace: str, body: Object, subresource: str = ""
    ) -> Object:
        """As a strategic merge patch, as far as dicts and named containers go."""
        key = (kind, namespace, name)
        self._ask(f"change({subresource})" if subresource else "change", key)
        return self.put(_merged(self.objects[key], body))

    def log(
        self, namespace: str, pod: str, container: str, lines: int, previous: bool = False, times: bool = False
    ) -> str:
        return self.logs.get(container + ("/previous" if previous else ""), "")

    def _ask(self, verb: str, key: Key) -> None:
        self.before(verb, key)
        self.asked.append(f"{verb} {key[0]} {'/'.join(filter(None, key[1:]))}")


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        both: dict[str, Any] = {**old, **new}
        return {key: _merged(old[key], new[key]) if key in old and key in new else both[key] for key in both}
    if isinstance(old, list) and isinstance(new, list) and all("name" in item for item in (*old, *new)):
        named: dict[str, Any] = {item["name"]: item for item in new}
        return [_merged(item, named.get(item["name"], {})) for item in old]
    return new


def _key(obj: Mapping[str, Any]) -> Key:
    place = "" if obj["kind"] in CLUSTER_SCOPED else obj["metadata"].get("namespace", "")
    return obj["kind"], place, obj["metadata"]["name"]


def _selected(obj: Object, labels: str) -> bool:
    held = obj["metadata"].get("labels") or {}
    for term in filter(None, labels.split(",")):
        name, unequal, value = term.partition("!=")
        if not unequal:
            name, equal, value = term.partition("=")
            if name not in held or (equal and held[name] != value):
                return False
        elif held.get(name) == value:
            return False
    return True
