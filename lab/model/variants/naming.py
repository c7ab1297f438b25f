"""Names of variants: the form of a parent with components, and the former names of each.

    somaxconn-128                    ROOT+somaxconn-128: a component without a parent stands on the root of its system
    somaxconn-128+somaxconn-32768    its baseline is the part before the first +
    A+B++C                           its baseline is A+B, the part before the last ++

`manifests/aliases.toml` has the former names: on a command line and in a stored run they still mean the same variant.
Whether a variant can be rendered is not known here: the caller that loads it finds out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from lab.base.validation import Record, read_toml, validate_table
from lab.model.variants.annotations import list_folders
from lab.model.variants.knobs import MANIFESTS, knob_names

ALIASES = "aliases.toml"
AT = "@"
"""The separator between a variant's name and the commit of its manifests, which are in the folder `at-COMMIT`."""
COMPONENT_SEPARATOR, ON_TOP = "+", "++"
"""The separators before a variant's components: for a parent whose name is a single word, and for any other."""
_ARM = re.compile(r"(?P<variant>.+?)(?P<more>-again|-null-\d+)?")


class Aliases(Record, strict=True):
    """The file of former names, each with the present one."""

    root: str = ""
    """The root of components whose names begin with no other system's; empty where manifests have no such file."""
    variants: dict[str, str]
    components: dict[str, str]
    gone: dict[str, str]
    """The variants that no longer exist, each with the one that now does the same; stored runs keep their names."""


def overlay_names(manifests: Path = MANIFESTS) -> list[str]:
    """Return the names of the variants that have a folder."""
    return list_folders(manifests / "overlays")


def aliases(manifests: Path = MANIFESTS) -> Aliases:
    """Return the former names of variants and components; empty for manifests that have no such file yet.

    Raises:
        UsageError: The file is faulty.

    """
    path = manifests / ALIASES
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return Aliases(variants={}, components={}, gone={})


@lru_cache(maxsize=8)
def _read(path: Path, time_ns: int) -> Aliases:
    place = f"manifests/{ALIASES}"
    return validate_table(Aliases, read_toml(path, place, "git's"), place, place)


def split_name(name: str) -> tuple[str, tuple[str, ...]]:
    """Split a name into the parent and the components on it; a name of one word is a parent without components."""
    if ON_TOP in name:
        parent, _, components = name.rpartition(ON_TOP)
    elif COMPONENT_SEPARATOR in name:
        parent, _, components = name.partition(COMPONENT_SEPARATOR)
    else:
        return name, ()
    return parent, tuple(components.split(COMPONENT_SEPARATOR))


def join_name(parent: str, added: Sequence[str], manifests: Path = MANIFESTS) -> str:
    """Return the name of the variant that adds components to a parent.

    Args:
        parent: The present name of the parent.
        added: The names of the components.
        manifests: The folder of the manifests.

    """
    grandparent, components = split_name(parent)
    short = components[0] if len(components) == 1 and grandparent == root_of(components[0], manifests) else ""
    if short and short not in overlay_names(manifests):
        parent = short
    return (
        f"{parent}{ON_TOP if COMPONENT_SEPARATOR in parent else COMPONENT_SEPARATOR}{COMPONENT_SEPARATOR.join(added)}"
    )


def root_of(component: str, manifests: Path = MANIFESTS) -> str:
    """Return the root variant that a component without a parent stands on: the system with which its name begins."""
    return max(
        (name for name in overlay_names(manifests) if component.startswith(f"{name}-")),
        key=len,
        default=aliases(manifests).root or aliases().root,
    )


def find_present_name(name: str, manifests: Path = MANIFESTS) -> str:
    """Return the present name of a variant from any of its names; an unknown name returns unchanged."""
    stem, at, ref = name.partition(AT)
    if at:
        return f"{find_present_name(stem, manifests)}{AT}{ref}"
    former = aliases(manifests)
    if name in overlay_names(manifests):
        return name
    if (present := former.variants.get(name) or former.gone.get(name)) is not None:
        return present
    parent, components = split_name(name)
    if components:
        components = tuple(former.components.get(component, component) for component in components)
        return join_name(find_present_name(parent, manifests), components, manifests)
    component = former.components.get(name, name)
    return (
        f"{root_of(component, manifests)}{COMPONENT_SEPARATOR}{component}"
        if component in knob_names(manifests)
        else name
    )


def present_arm(name: str) -> str:
    """Return the present name of an arm of a stored run, whose suffix `-again` or `-null-1` is kept."""
    parts = _ARM.fullmatch(name)
    return stored_name(parts["variant"]) + (parts["more"] or "") if parts else name


def stored_name(name: str) -> str:
    """Return the present name of a variant of a stored run; a variant that no longer exists keeps its name."""
    return name if name in aliases().gone else find_present_name(name)


def list_spellings(name: str) -> Iterator[str]:
    """Yield a variant's present name, then every former one."""
    former = aliases()
    yield name
    yield from (old for old, present in former.variants.items() if present == name)
    parent, components = split_name(name)
    if components:
        before = {present: old for old, present in former.components.items()}
        for parent_name in list_spellings(find_present_name(parent)):
            for spelled in (components, tuple(before.get(component, component) for component in components)):
                yield f"{parent_name}{ON_TOP if COMPONENT_SEPARATOR in parent_name else COMPONENT_SEPARATOR}{COMPONENT_SEPARATOR.join(spelled)}"


def name_in(name: str, manifests: Path) -> str:
    """Return the name of a variant in these manifests, which may be older than the checkout's.

    A variant that they do not have keeps its name.
    """
    present = find_present_name(name, manifests)
    return (
        present
        if is_variant(present, manifests)
        else next((spelling for spelling in list_spellings(name) if is_variant(spelling, manifests)), name)
    )


def is_variant(name: str, manifests: Path = MANIFESTS) -> bool:
    """Return whether there is a variant of this name, present or former, with the components that it names."""
    present = find_present_name(name, manifests)
    if present in overlay_names(manifests):
        return True
    parent, components = split_name(present)
    return bool(components) and set(components) <= set(knob_names(manifests)) and is_variant(parent, manifests)
