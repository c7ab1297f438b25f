"""Names of variants: how a parent with a component is written, and what each was called before.

    somaxconn-128                    ROOT+somaxconn-128: a component by itself stands on the root of its system
    somaxconn-128+somaxconn-32768    its baseline is what stands before the first +
    A+B++C                           its baseline is A+B, which stands before the last ++

`manifests/aliases.toml` has the names of before: on a command line and in a stored run they mean the same variant as ever.
Refuses to know whether a variant can be rendered: whoever loads it finds that out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from lab.base.validation import Record, read_toml, validated
from lab.model.variants.annotations import folders
from lab.model.variants.knobs import MANIFESTS, knob_names

ALIASES = "aliases.toml"
AT = "@"
"""Between a variant's name and the commit whose manifests it is of: they lie beside the others, in `at-COMMIT`."""
ON, ON_TOP = "+", "++"
"""Before a variant's own components: where its parent's name is one word, and where it is not."""
_ARM = re.compile(r"(?P<variant>.+?)(?P<more>-again|-null-\d+)?")


class Aliases(Record, strict=True):
    """The file of former names: each → the present one."""

    root: str = ""
    """The root of components whose names begin with no other system's; empty in manifests from before there was such a file."""
    variants: dict[str, str]
    components: dict[str, str]
    gone: dict[str, str]
    """Variants that there are not any more → the one that makes the system do the same now. Stored runs keep their names."""


def overlay_names(manifests: Path = MANIFESTS) -> list[str]:
    """Return the names of the variants that have a folder of their own."""
    return folders(manifests / "overlays")


def aliases(manifests: Path = MANIFESTS) -> Aliases:
    """Return the former names. None where these manifests are from before there was such a file. UsageError for a faulty file."""
    path = manifests / ALIASES
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return Aliases(variants={}, components={}, gone={})


@lru_cache(maxsize=8)
def _read(path: Path, time_ns: int) -> Aliases:
    place = f"manifests/{ALIASES}"
    return validated(Aliases, read_toml(path, place, "git's"), place, place)


def split_name(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of the parent and the components on it; of a name of one word, this word and none."""
    if ON_TOP in name:
        parent, _, own = name.rpartition(ON_TOP)
    elif ON in name:
        parent, _, own = name.partition(ON)
    else:
        return name, ()
    return parent, tuple(own.split(ON))


def join_name(parent: str, own: Sequence[str], manifests: Path = MANIFESTS) -> str:
    """Return the name of a variant that has these components on a parent, given by its present name."""
    below, components = split_name(parent)
    short = components[0] if len(components) == 1 and below == root_of(components[0], manifests) else ""
    if short and short not in overlay_names(manifests):
        parent = short
    return f"{parent}{ON_TOP if ON in parent else ON}{ON.join(own)}"


def root_of(component: str, manifests: Path = MANIFESTS) -> str:
    """Return the root that a component stands on where no parent is named: that of the system with which its name begins."""
    return max(
        (name for name in overlay_names(manifests) if component.startswith(f"{name}-")),
        key=len,
        default=aliases(manifests).root or aliases().root,
    )


def present_name(name: str, manifests: Path = MANIFESTS) -> str:
    """Return what a variant is called now, by any of its names; a name that nothing has comes back as it is."""
    stem, at, ref = name.partition(AT)
    if at:
        return f"{present_name(stem, manifests)}{AT}{ref}"
    former = aliases(manifests)
    if name in overlay_names(manifests):
        return name
    if (now := former.variants.get(name) or former.gone.get(name)) is not None:
        return now
    parent, own = split_name(name)
    if own:
        own = tuple(former.components.get(each, each) for each in own)
        return join_name(present_name(parent, manifests), own, manifests)
    component = former.components.get(name, name)
    return f"{root_of(component, manifests)}{ON}{component}" if component in knob_names(manifests) else name


def present_arm(name: str) -> str:
    """Return what an arm of a stored run is called now: as its variant, whose second measurement or null arm it may be."""
    parts = _ARM.fullmatch(name)
    return stored_name(parts["variant"]) + (parts["more"] or "") if parts else name


def stored_name(name: str) -> str:
    """Return what a variant of a stored run is called now. Where it did something else then, it keeps its name."""
    return name if name in aliases().gone else present_name(name)


def spellings(name: str) -> Iterator[str]:
    """Yield a variant's present name, then every one that it had before."""
    former = aliases()
    yield name
    yield from (old for old, now in former.variants.items() if now == name)
    parent, own = split_name(name)
    if own:
        before = {now: old for old, now in former.components.items()}
        for under in spellings(present_name(parent)):
            for components in (own, tuple(before.get(each, each) for each in own)):
                yield f"{under}{ON_TOP if ON in under else ON}{ON.join(components)}"


def name_in(name: str, manifests: Path) -> str:
    """Return the name by which these manifests, which may be older than the checkout's, have a variant; its own where they have none."""
    present = present_name(name, manifests)
    return (
        present
        if is_variant(present, manifests)
        else next((each for each in spellings(name) if is_variant(each, manifests)), name)
    )


def is_variant(name: str, manifests: Path = MANIFESTS) -> bool:
    """Return whether there is a variant of this name, present or former, with the components that it names."""
    present = present_name(name, manifests)
    if present in overlay_names(manifests):
        return True
    parent, own = split_name(present)
    return bool(own) and set(own) <= set(knob_names(manifests)) and is_variant(parent, manifests)
