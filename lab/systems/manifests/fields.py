"""Reading an object's fields one by one, so that none is silently ignored.

A field is either taken (honoured), waived (has no meaning on this target, and the reader says so by waiving it)
or an error that names it. Refuses to guess: a wrong type is an error too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from lab.base.errors import UsageError, did_you_mean, refuse_if

T = TypeVar("T")


class Fields:
    """One mapping of a manifest and its place, such as `Deployment/proxy: spec.template`. Use as a context manager."""

    def __init__(self, place: str, raw: object) -> None:
        if not isinstance(raw, Mapping):
            raise UsageError(place, f"expected a mapping, got {raw!r}", "see the object's API reference")
        self.place = place
        self._left: dict[str, Any] = {str(key): value for key, value in raw.items()}
        self._asked: set[str] = set()

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            for name in self._left:
                remedy = f"{did_you_mean(name, self._asked)} (or --target kind)"
                raise UsageError(self.at(name), "the local target does not honour this field", remedy)

    def at(self, name: str) -> str:
        return f"{self.place}{'.' if ': ' in self.place else ': '}{name}"

    def refuse(self, broken: object, name: str, fault: str, remedy: str) -> None:
        """UsageError of a field (empty: of the mapping), where a rule is broken."""
        refuse_if(broken, self.at(name) if name else self.place, fault, remedy)

    def take(self, name: str, default: T) -> T:
        """The field, of the default's type; the default where it is missing or null."""
        self._asked.add(name)
        value = self._left.pop(name, None)
        if value is None:
            return default
        wrong = not isinstance(value, type(default)) or (isinstance(value, bool) != isinstance(default, bool))
        self.refuse(wrong, name, f"expected {_kind(default)}, got {value!r}", "correct the manifest")
        return value

    def need(self, name: str, example: T) -> T:
        """Like `take`, for a field that must be there."""
        self.refuse(not self.has(name), "", f"'{name}' is missing", f"add it: {_kind(example)}")
        return self.take(name, example)

    def choice(self, name: str, options: Collection[str], default: str = "", remedy: str = "correct it") -> str:
        """A field that is one of these texts, and must be there where no default is given."""
        value = self.take(name, default) if default else self.need(name, "")
        self.refuse(value not in options, name, f"expected {' or '.join(options)}, got {value!r}", remedy)
        return value

    def any(self, name: str) -> Any:
        self._asked.add(name)
        return self._left.pop(name, None)

    def inner(self, name: str) -> Fields:
        """A mapping below; empty where it is missing."""
        return Fields(self.at(name), self.take(name, dict[str, Any]()))

    def has(self, name: str) -> bool:
        return self._left.get(name) is not None

    def each(self, name: str, key: str = "name") -> Iterator[Fields]:
        """The mappings of a list, each with a place like `containers[proxy]`, closed when the next is asked for."""
        for index, item in enumerate(self.take(name, list[Any]())):
            label = item.get(key, index) if isinstance(item, Mapping) else index
            with Fields(f"{self.at(name)}[{label}]", item) as fields:
                yield fields

    def waive(self, *names: str) -> None:
        """These have no meaning on this target."""
        for name in names:
            self.any(name)


@contextmanager
def spec_of(place: str, raw: object, *waived: str) -> Iterator[Fields]:
    """The `spec` of an object whose other fields are known, or waived."""
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", *waived)
        with fields.inner("spec") as spec:
            yield spec


def _kind(example: object) -> str:
    names = {"bool": "true or false", "int": "an integer", "str": "a string", "list": "a list", "dict": "a mapping"}
    return names[type(example).__name__]
