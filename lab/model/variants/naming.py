"""The names of variants: how a parent's name is joined with components (settings), and which former names are known.

    somaxconn-128                    means ROOT+somaxconn-128: without a parent, a component is added to its system's root
    somaxconn-128+somaxconn-32768    its baseline is the part before the first +
    A+B++C                           its baseline is A+B, the part before the last ++

`manifests/aliases.toml` has the former names: on a command line and in a stored run they still mean the same variant.
Whether a variant can be rendered is not known here: the caller that loads the variant finds out.
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
    """The content of `manifests/aliases.toml`: former names of variants and components (settings), each with the present name."""

    root: str = ""
    """The default root: the variant to which a component is added, unless its name begins with another root's name.

    It is empty if the manifests have no file `aliases.toml`.
    """
    variants: dict[str, str]
    components: dict[str, str]
    gone: dict[str, str]
    """The variants that no longer exist, each with the one that now does the same; stored runs keep their names."""


def overlay_names(manifests: Path = MANIFESTS) -> list[str]:
    """Return the names of the overlays: the variants that have a folder in `manifests/overlays`."""
    return list_folders(manifests / "overlays")


def aliases(manifests: Path = MANIFESTS) -> Aliases:
    """Return the former names of variants and components (settings); empty if there is no file `aliases.toml`.

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
    """Split a variant's name into its parent and the components (settings) that are added: `A+B++C` → ("A+B", ("C",)).

    In `A+B+C` the first `+` separates: ("A", ("B", "C")). A name without `+` has no components.
    """
    parent, sign, components = name.rpartition(ON_TOP) if ON_TOP in name else name.partition(COMPONENT_SEPARATOR)
    return parent, tuple(components.split(COMPONENT_SEPARATOR)) if sign else ()


def join_name(parent: str, added: Sequence[str], manifests: Path = MANIFESTS) -> str:
    """Return the name of the variant that adds components (settings) to a parent: `A`, [`B`] → `A+B`.

    A parent whose name already has a `+` is joined by `++`. If the parent is a single component on its default root,
    the root is left out of the name: `A+B` with [`C`] → `B+C`, where `A` is the default root of `B`.

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
    """Return the variant to which a component (setting) is added if no parent is named.

    It is the overlay whose name, with a hyphen, is the beginning of the component's name. Without such an overlay it is
    the default root in `aliases.toml`.
    """
    return max(
        (name for name in overlay_names(manifests) if component.startswith(f"{name}-")),
        key=len,
        default=aliases(manifests).root or aliases().root,
    )


def find_present_name(name: str, manifests: Path = MANIFESTS) -> str:
    """Return the present name of a variant from its present or any former name; an unknown name is returned unchanged."""
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
    """Return the present name of an arm (a variant in a run) from its name in a stored run.

    Its variant may have been renamed since. A suffix that distinguishes repeated measurements of one variant, such as
    `-again` or `-null-1`, does not change.
    """
    parts = _ARM.fullmatch(name)
    return stored_name(parts["variant"]) + (parts["more"] or "") if parts else name


def stored_name(name: str) -> str:
    """Return the present name of a variant from its name in a stored run; the exact name of a removed variant is unchanged.

    If the name of a removed variant is only a part of the name, such as before `+` or `@`, it is replaced like others.
    """
    return name if name in aliases().gone else find_present_name(name)


def list_spellings(name: str) -> Iterator[str]:
    """Yield all names by which a variant is or was known: first the given present name, then the former ones."""
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
    """Return the name that a variant has in certain manifests, which may be older than those of the checkout.

    If the manifests do not have the variant under any of its names, the given name is returned.

    Args:
        name: The present name.
        manifests: The folder of the manifests.

    """
    present = find_present_name(name, manifests)
    return (
        present
        if is_variant(present, manifests)
        else next((spelling for spelling in list_spellings(name) if is_variant(spelling, manifests)), name)
    )


def is_variant(name: str, manifests: Path = MANIFESTS) -> bool:
    """Return whether a variant exists under this present or former name, with all the components (settings) in the name."""
    present = find_present_name(name, manifests)
    if present in overlay_names(manifests):
        return True
    parent, components = split_name(present)
    return bool(components) and set(components) <= set(knob_names(manifests)) and is_variant(parent, manifests)
