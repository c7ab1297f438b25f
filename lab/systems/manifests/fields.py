"""A reader of the fields in a manifest that raises an error for each field which the lab does not know.

The caller either reads a field (the lab uses its value), or waives it (ignores it explicitly, because the field has no meaning
on this target). Any other field in the manifest raises an error that names the field. So does a value of the wrong type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from lab.base.errors import UsageError, did_you_mean, refuse_if

T = TypeVar("T")


class Fields:
    """The fields of one mapping in a manifest; a context manager that checks that every field was read.

    Each field must be read, or explicitly ignored with `waive`. When the `with` block ends without an exception, any other field
    raises UsageError. So the lab reports every field that it does not support.

    Attributes:
        place: the place of the mapping in the manifest, such as `Deployment/proxy: spec.template`.

    """

    def __init__(self, place: str, raw: object) -> None:
        if not isinstance(raw, Mapping):
            raise UsageError(place, f"expected a mapping, got {raw!r}", "see the object's API reference")
        self.place = place
        self._unread: dict[str, Any] = {str(key): value for key, value in raw.items()}
        self._read: set[str] = set()

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            for name in self._unread:
                remedy = f"{did_you_mean(name, self._read)} (or --target kind)"
                raise UsageError(self.at(name), "the local target does not honour this field", remedy)

    def at(self, name: str) -> str:
        """Return the place of a field, such as `Deployment/proxy: spec.replicas`."""
        return f"{self.place}{'.' if ': ' in self.place else ': '}{name}"

    def refuse(self, broken: object, name: str, fault: str, remedy: str) -> None:
        """Raise UsageError about a field of the manifest if a rule is broken.

        Args:
            broken: any value; the rule counts as broken if the value is true.
            name: the field; empty for the mapping as a whole.
            fault: the fault in words.
            remedy: the remedy in words.

        """
        refuse_if(broken, self.at(name) if name else self.place, fault, remedy)

    def take(self, name: str, default: T) -> T:
        """Return the value of a field and mark the field as read.

        Args:
            name: the field.
            default: the result if the field is missing or null. The value must have the type of this default.

        Raises:
            UsageError: when the value has another type.

        """
        self._read.add(name)
        value = self._unread.pop(name, None)
        if value is None:
            return default
        wrong = not isinstance(value, type(default)) or (isinstance(value, bool) != isinstance(default, bool))
        self.refuse(wrong, name, f"expected {_name_type(default)}, got {value!r}", "correct the manifest")
        return value

    def need(self, name: str, example: T) -> T:
        """Return the value of a required field and mark the field as read.

        Args:
            name: the field.
            example: any value of the type that the field must have.

        Raises:
            UsageError: when the field is missing or null, or has another type.

        """
        self.refuse(not self.has(name), "", f"'{name}' is missing", f"add it: {_name_type(example)}")
        return self.take(name, example)

    def choice(self, name: str, options: Collection[str], default: str = "", remedy: str = "correct it") -> str:
        """Return the value of a field that must be one of some texts, and mark the field as read.

        Args:
            name: the field.
            options: the allowed texts.
            default: the result if the field is missing; empty = the field is required.
            remedy: the remedy of the error, in words.

        Raises:
            UsageError: when the field has another value, or is required and missing.

        """
        value = self.take(name, default) if default else self.need(name, "")
        self.refuse(value not in options, name, f"expected {' or '.join(options)}, got {value!r}", remedy)
        return value

    def any(self, name: str) -> Any:
        """Return the value of a field, of whatever type, and mark the field as read; None if the field is missing."""
        self._read.add(name)
        return self._unread.pop(name, None)

    def inner(self, name: str) -> Fields:
        """Return the fields of a nested mapping, and mark the mapping as read; a missing mapping counts as an empty one."""
        return Fields(self.at(name), self.take(name, dict[str, Any]()))

    def has(self, name: str) -> bool:
        """Return whether the mapping has a field with this name; False if the field is null or was already read."""
        return self._unread.get(name) is not None

    def each(self, name: str, key: str = "name") -> Iterator[Fields]:
        """Yield each mapping in a list of mappings, as `Fields`, and mark the list as read.

        When the caller requests the next mapping, UsageError is raised if the previous mapping has an unread field.

        Args:
            name: the field that contains the list; a missing list counts as an empty one.
            key: the field of each mapping whose value names the mapping in error messages, as in `containers[proxy]`.

        """
        for index, item in enumerate(self.take(name, list[Any]())):
            label = item.get(key, index) if isinstance(item, Mapping) else index
            with Fields(f"{self.at(name)}[{label}]", item) as fields:
                yield fields

    def waive(self, *names: str) -> None:
        """Mark fields as read without using their values, because these fields have no meaning on this target."""
        for name in names:
            self.any(name)


@contextmanager
def open_spec(place: str, raw: object, *waived: str) -> Iterator[Fields]:
    """Yield the fields of a Kubernetes object's `spec`, and check at the end of the `with` block that every field was read.

    An unread field raises UsageError. A field that was ignored with `waive` counts as read.

    Args:
        place: the object, for error messages.
        raw: the object's manifest.
        *waived: the fields that the object may have next to `spec`, apiVersion, kind and metadata.

    """
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", *waived)
        with fields.inner("spec") as spec:
            yield spec


def _name_type(example: object) -> str:
    names = {"bool": "true or false", "int": "an integer", "str": "a string", "list": "a list", "dict": "a mapping"}
    return names[type(example).__name__]
