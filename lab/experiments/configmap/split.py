"""The split of a user's ConfigMap into settings that can be measured, and notes about everything else.

    one key          that nginx accepts and that changes something, alone or with the keys that it needs for this
    keys together    that decide one directive together, or need each other
    the whole file   without keys that the controller ignores or nginx refuses

If nginx refuses one value, the controller applies nothing of the whole file. So the measured file is the user's file
without this value, and a note explains it. Some keys have an effect only with the real controller. If the target runs a
plain nginx instead, they are left out, and a note has the command that measures the whole file with the controller. If
the target runs the controller, these keys are read back from its ConfigMap.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Literal, NamedTuple

from lab.base.errors import UsageError, refuse_if
from lab.experiments.configmap.reading import FileSettings
from lab.model.variants.knobs import Check
from lab.systems import checker
from lab.systems.ingress_nginx import keys
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.ingress_nginx.counterparts import explain_name, f5_text, is_f5

BASELINE, OVER_TLS, BEHIND_BALANCER, OVER_TLS_BEHIND_BALANCER = "ingress-nginx", "tls", "balancer", "balancer-tls"
TLS = (OVER_TLS, OVER_TLS_BEHIND_BALANCER)
_ROOTS = {
    (False, False): BASELINE,
    (True, False): OVER_TLS,
    (False, True): BEHIND_BALANCER,
    (True, True): OVER_TLS_BEHIND_BALANCER,
}
"""The variant that keys are set on, by whether it uses TLS and whether it is behind a load balancer."""
NAMESPACE = "ingress-lab"
REFUSED = "nginx refuses it, and so the controller the whole file"
WHOLE = "your-configuration"
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,19}(?<!-)")
_ELSEWHERE = re.compile(
    r"host not found in |dlopen\(|(?:open|opendir|BIO_new_file|glob)\(|cannot load certificate|SSL_\w+\(\"/"
)
"""The message of nginx about a missing name or file that a controller may have (mounted, or by its cluster's DNS)."""
_UNDEFINED = re.compile(r"unknown (?!directive)|is unknown|zero size|host not found in upstream")
"""The message of nginx about a variable, zone, format or upstream that another part of the configuration defines."""


@dataclass(frozen=True, slots=True)
class KeySetting:
    """A setting to measure: one or more keys of a user's ConfigMap that are set together on a variant.

    Attributes:
        values: Key → value.
        checks: What to read back from the running proxy, to see that the keys have an effect.
        needs: Further keys without which these have no effect. The setting is compared with a variant that has the further keys alone.
        root: The name of the variant on which the keys are set.
        whole: Whether the setting is the whole file.

    """

    values: Mapping[str, str]
    checks: tuple[Check, ...]
    needs: Mapping[str, str]
    root: str
    whole: bool = False
    other_objects: tuple[str, ...] = ()
    """The objects that the setting's values name, as JSON."""
    label: str = ""
    """The setting's name, where it is not made from its keys."""

    @property
    def name(self) -> str:
        """The setting's name: `keep-alive-300` for one key, `gzip-level-and-2-more` for several, `your-configuration` for a file.

        The value is part of the name only if there is a single key, and its value is a short word or number.
        """
        over = "-over-tls" if self.root in TLS else ""
        if self.label:
            return self.label
        if self.whole:
            return f"{WHOLE}{over}"
        key, *further = self.values
        if further:
            return f"{key}-and-{len(further)}-more{over}"
        text = self.values[key].lower().replace("_", "-")
        return f"{key}-{text}" if _WORD.fullmatch(text) else key


class KeyNote(NamedTuple):
    """A note about a key of a user's ConfigMap: why it is not measured, or how the controller reads its value.

    The kinds of notes are:

    unknown     ingress-nginx has no such key, and ignores it
    invalid     the controller ignores the value, so that a default stays
    default     the value is the default
    unseen      the key changes nothing for what the lab sends
    read        the key is measured, with another value than the text suggests
    refused     nginx refuses the value, and so the controller refuses the whole file
    here        the key cannot be measured here, for another reason
    file        the note is about the file, or about what becomes of a value in it

    Attributes:
        kind: The kind of note.
        key: The key; empty for a note about the whole file.
        text: The note in words.

    """

    kind: Literal["unknown", "invalid", "default", "unseen", "read", "refused", "here", "file"]
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a user's ConfigMap that are measured, with notes on keys that are left out or whose value is read differently.

    The parts are each key (with the keys that it needs), groups of related keys, and the whole file.
    """

    singles: tuple[KeySetting, ...]
    """The settings of single keys, from which `together` makes the settings of several keys."""
    kept: Mapping[str, str]
    """The whole file: every key that changes something and that nginx accepts together with the others.

    Where the target runs the real controller, the keys that only the controller can put into effect are part of it.
    """
    remarks: tuple[KeyNote, ...]
    """Notes about everything that is not measured, or is measured otherwise than its text suggests, and about the file."""
    other_objects: tuple[str, ...] = ()
    """The objects that values of the file name, as JSON."""
    of_controller: tuple[str, ...] = ()
    """The keys that only the real controller can put into effect; empty where the target runs it."""

    @property
    def notes(self) -> list[str]:
        """All notes about a user's ConfigMap, as lines of text; a note about a single key begins with `KEY: `.

        The notes are about keys that are not measured, keys whose value is read differently than it is written, and the file.
        """
        return [f"{key}: {text}" if key else text for _, key, text in self.remarks]

    def together(self, without: Sequence[str] = ()) -> list[KeySetting]:
        """Return the settings with several keys: the whole file, and smaller groups of related keys.

        The keys are set on a root (a variant without a baseline). If some keys need another root, such as one with TLS, the whole
        file appears once for each root. A whole file with a single key is left out, because this key is measured alone. A
        setting is also left out if nothing of it can be read back from the running proxy.

        Args:
            without: Keys to leave out.

        """
        accepted = {key: value for key, value in self.kept.items() if key not in without}
        roots = dict.fromkeys(_choose_root(accepted, item.root) for item in self.singles if len(accepted) > 1)
        settings = [_build_setting(accepted, {}, root, self.other_objects, is_whole=True) for root in roots]
        for group, root in _group_keys(self.singles):
            values = {key: value for key, value in accepted.items() if key in group}
            alone = any(item.values == values and not item.needs for item in self.singles)
            if 1 < len(values) < len(accepted) and not alone:
                settings.append(_build_setting(values, {}, _choose_root(values, root), self.other_objects))
        return [item for item in settings if item.checks]


def refuse_f5(place: str, given: FileSettings) -> None:
    """Raise an error if a file is the ConfigMap of F5's NGINX Ingress Controller; its remedy has the counterparts of the keys.

    Args:
        place: The name of the file.
        given: The settings in the file.

    Raises:
        UsageError: It is such a ConfigMap.

    """
    if is_f5(given.data):
        counterparts = "; ".join(map(f5_text, given.data))
        raise UsageError(
            place,
            "is the ConfigMap of F5's NGINX Ingress Controller, not of ingress-nginx",
            f"their counterparts: {counterparts}\n  written with those keys, `just bench --config FILE` measures it, and"
            " `just migrate --config FILE` shows what every successor makes of it",
        )


def split(place: str, given: FileSettings, elsewhere: bool = False) -> Split:
    """Return the settings in a user's file that can be measured, with notes about all others; raise an error if there are none.

    Args:
        place: The name of the file.
        given: The settings in the file.
        elsewhere: Whether the target runs the real controller, instead of an nginx with the configuration that it would write.

    Raises:
        UsageError: Nothing is left to measure (the remedy has all notes), or it is the ConfigMap of F5's controller.

    """
    parts = sort_keys(place, given, elsewhere)
    refuse_if(not parts.singles, place, "nothing to measure", "\n  ".join(parts.notes) or "it holds no settings")
    return parts


def sort_keys(place: str, given: FileSettings, elsewhere: bool = False) -> Split:
    """Return the settings in a user's file that can be measured, which may be none, and notes about everything else.

    Args:
        place: The name of the file.
        given: The settings in the file.
        elsewhere: Whether the target runs the real controller, instead of an nginx with the configuration that it would write.

    Raises:
        UsageError: It is the ConfigMap of F5's controller.

    """
    refuse_f5(place, given)
    notes = [KeyNote("file", "", text) for text in given.notes]
    of_nginx: dict[str, str] = {}
    of_controller: dict[str, str] = {}
    objects_named: dict[str, None] = {}
    for key, value in given.data.items():
        if key not in KEYS:
            text = f"ingress-nginx 1.15.1 has no such key, and ignores it: {explain_name(key, value)}"
            notes.append(KeyNote("unknown", key, text))
            continue
        look = keys.inspect_key(key, value)
        if look.idle or look.remark:
            notes.append(KeyNote(look.kind, key, look.idle or look.remark))
        if look.idle:
            continue
        (of_controller if keys.needs_controller(key, value) else of_nginx)[key] = value
        if elsewhere and (kind := KEYS[key].names):
            if (reference := _build_object(kind, value, given)) is None:
                text = f"names a {kind} that the file does not hold: give both, and name it as namespace/name"
                notes.append(KeyNote("here", key, text))
                del of_controller[key]
            else:
                of_controller[key], text = reference
                objects_named[text] = None
    if of_controller and not elsewhere:
        count = f"{len(of_controller)} of {len(given.data)} keys {'is' if len(of_controller) == 1 else 'are'} the real controller's"
        file = shlex.quote(place) if place != "standard input" else "-"
        command = f"scripts/shell just bench --config {file} --target apiserver"
        text = f"{count} ({', '.join(of_controller)}): left out here; measured with the whole file by: {command}"
        notes.append(KeyNote("file", "", text))
    tried = OVER_TLS if any(KEYS[key].tls for key in of_nginx) else BASELINE
    accepted = _select_accepted(of_nginx, tried)
    refused = _explain(of_nginx, accepted, of_controller, tried)
    notes += refused.values()
    answering, measurable = _split_answering(accepted, tried)
    notes += [
        KeyNote("here", key, f"not measurable: with it nginx answers every request itself (`{it}`), and no backend")
        for key, it in answering.items()
    ]
    roots = {key: _ROOTS[KEYS[key].tls, KEYS[key].behind] for key in measurable}
    with ThreadPoolExecutor() as pool:  # nginx's checker is another process; its answers are kept
        list(pool.map(lambda key: keys.refusal({key: measurable[key]}, roots[key]), measurable))
    singles: list[KeySetting] = []
    objects = tuple(objects_named)
    for key, root in roots.items():
        needs = _find_needs(key, measurable, root)
        values = {key: measurable[key]}
        if needs and not keys.differs({}, needs, root):  # the needs alone change nothing: set all at once
            values, needs = {**values, **needs}, {}
        single = (
            _build_setting(values, needs, _choose_root({**needs, **values}, root), ()) if needs is not None else None
        )
        if single is None and not any(key in item.values for item in singles):
            notes.append(KeyNote("here", key, "nothing to measure: alone it changes no directive"))
        elif single and not single.checks:
            text = "not measurable: what it sets depends on the machine, or is read back by nothing"
            notes.append(KeyNote("here", key, text))
        elif single:
            singles.append(single)
    for key, value in of_controller.items() if elsewhere else ():
        root = _ROOTS[KEYS[key].tls, KEYS[key].behind]
        singles.append(_build_setting({key: value}, {}, _choose_root({key: value}, root), objects))
        measurable[key] = value
    left = [*refused, *answering, *(() if elsewhere else of_controller)]
    if left and measurable:
        notes.append(KeyNote("file", WHOLE, f"the whole file without {', '.join(left)}"))
    if len(measurable) == 1 and singles:
        notes.append(KeyNote("file", WHOLE, f"the whole file is {singles[0].name}"))
    kept = {key: measurable[key] for key in given.data if key in measurable}
    return Split(tuple(singles), kept, tuple(notes), objects, () if elsewhere else tuple(of_controller))


def pair_files(old: Split, new: Split) -> list[KeySetting]:
    """Return two settings to compare: the whole old file and the whole new file, on the same root (a variant without a baseline).

    The root has TLS, or a load balancer in front of the proxy, if a key with different values in the two files needs this. A
    value in one of the files may also need it, such as `use-proxy-protocol: true`.

    Args:
        old: The settings of the old file.
        new: The settings of the new file.

    Raises:
        UsageError: Nothing of a file can be read back from the running proxy.

    """
    differing = [key for key in {**old.kept, **new.kept} if old.kept.get(key) != new.kept.get(key)]
    root = _ROOTS[any(KEYS[key].tls for key in differing), any(KEYS[key].behind for key in differing)]
    root = _choose_root(new.kept, _choose_root(old.kept, root))
    settings = [_build_setting(side.kept, {}, root, side.other_objects, is_whole=True) for side in (old, new)]
    if unread := next((item for item in settings if item.values and not item.checks), None):
        fault = f"nothing shows whether {', '.join(unread.values)} is set: it cannot be read back"
        raise UsageError("--config", fault, "measure it on the controller: --target apiserver")
    labels = ("old-configuration", "new-configuration")
    return [replace(item, label=label) for item, label in zip(settings, labels, strict=True)]


def _build_object(kind: str, value: str, given: FileSettings) -> tuple[str, str] | None:
    """Copy a ConfigMap or Secret of the user's file into the lab's namespace under a new name; None if the file does not have it.

    The result is also None if `value` has no namespace.

    Args:
        kind: `ConfigMap` or `Secret`.
        value: The name of the object, as `namespace/name`.
        given: The settings in the file, with its other objects.

    Returns:
        (new name as `namespace/name`, the object as JSON).

    """
    content = given.named_objects.get((kind, value.rpartition("/")[2]))
    if content is None or "/" not in value:
        return None
    name = f"your-{value.rpartition('/')[2]}"
    data = {"stringData" if kind == "Secret" else "data": dict(content)}
    metadata = {"name": name, "namespace": NAMESPACE}
    return f"{NAMESPACE}/{name}", json.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, **data})


def _explain(
    settings: Mapping[str, str], accepted: Mapping[str, str], of_controller: Mapping[str, str], variant: str
) -> dict[str, KeyNote]:
    """Return the reasons why nginx does not accept some keys of a user's ConfigMap, as key → note.

    Possible reasons are: this machine lacks something; the key needs another key; nginx refuses the value, on a real cluster as
    well; the lab cannot read the resulting nginx.conf; nginx took too long to check it.

    Args:
        settings: All keys for nginx with their values.
        accepted: The keys that nginx accepts together.
        of_controller: The keys that need the real controller.
        variant: The variant on which the keys are tried.

    """
    reasons: dict[str, KeyNote] = {}
    left = [*(key for key in settings if key not in accepted), *of_controller]
    for key in left[: len(left) - len(of_controller)]:
        message = keys.refusal({**accepted, key: settings[key]}, variant)
        missing = ", ".join(name for name in left if name != key)
        if _UNDEFINED.search(message) and missing:
            text = f"not measurable here: it may need what {missing} would define: {message}"
        elif _ELSEWHERE.match(message):
            text = f"not measurable here: it needs what only your cluster can have: {message}"
        elif message.startswith(keys.UNREAD):
            text = f"not measurable here: {message}"
        elif checker.is_late(message):
            text = f"not measurable here: whether nginx takes it cannot be said: {message}"
        else:
            text = f"{REFUSED}: {message}"
        reasons[key] = KeyNote("refused" if text.startswith(REFUSED) else "here", key, text)
    return reasons


def _split_answering(settings: Mapping[str, str], tried: str) -> tuple[dict[str, str], dict[str, str]]:
    """Divide keys into those with which nginx answers every request itself, without a backend, and all other keys.

    Args:
        settings: Key → value.
        tried: The variant on which the keys are tried.

    Returns:
        (key → the nginx directive that answers, key → value of all other keys).

    """
    left, answers = dict(settings), dict[str, str]()
    for key in list(settings) if keys.find_answering_directive({}, settings, tried) else ():
        fewer = {name: text for name, text in left.items() if name != key}
        answer = keys.find_answering_directive(fewer, left, tried)
        if answer and not keys.refusal(fewer, tried):
            left, answers[key] = fewer, answer
    return answers, left


def _choose_root(values: Mapping[str, str], root: str) -> str:
    """Return the root (a variant without a baseline) on which keys with these values can be set.

    With `use-proxy-protocol: true` the proxy expects PROXY protocol, so the root has a load balancer in front. With
    `force-ssl-redirect: true` the root has TLS, unless all keys are measured by the sweep `redirects`.

    Args:
        values: Key → value.
        root: The root that the keys need regardless of their values.

    """

    def is_true(key: str) -> bool:
        return key in values and keys.inspect_key(key, values[key]).value == "true"

    redirects = is_true("force-ssl-redirect") and any(KEYS[key].sweep != "redirects" for key in values)
    return _ROOTS[
        root in TLS or redirects, root in (BEHIND_BALANCER, OVER_TLS_BEHIND_BALANCER) or is_true("use-proxy-protocol")
    ]


def _select_accepted(changed: Mapping[str, str], variant: str) -> dict[str, str]:
    """Return as many of some keys as nginx accepts together, with their values and in their order.

    Switches (keys that are true or false) are tried first. If nginx refuses another key because of an accepted switch, the other
    key is left out, not the switch.

    Args:
        changed: Key → value.
        variant: The variant on which the keys are tried.

    """
    if not keys.refusal(changed, variant):
        return dict(changed)
    accepted: dict[str, str] = {}
    left = sorted(changed, key=lambda key: KEYS[key].kind != "bool")
    while fitting := [key for key in left if not keys.refusal({**accepted, key: changed[key]}, variant)]:
        for key in fitting:
            if not keys.refusal({**accepted, key: changed[key]}, variant):
                accepted[key] = changed[key]
        left = [key for key in left if key not in accepted]
    return {key: value for key, value in changed.items() if key in accepted}


def _find_needs(key: str, settings: Mapping[str, str], root: str) -> dict[str, str] | None:
    """Return the other keys that a key needs, as few as possible: without them nginx refuses the key, or the key changes nothing.

    Args:
        key: The key.
        settings: Key → value, of all keys.
        root: The variant on which the keys are tried.

    Returns:
        Key → value of the needed keys; empty if it needs none. None: even with all other keys nginx refuses it, or it changes nothing.

    """
    others = sorted(settings, key=lambda name: -len(commonprefix([name, key])))
    needs = {name: settings[name] for name in others if name != key}

    def fits(without: Mapping[str, str]) -> bool:
        combined = {**without, key: settings[key]}
        return not any(keys.refusal(values, root) for values in (combined, without)) and keys.differs(
            without, combined, root
        )

    if fits({}):
        return {}
    if not fits(needs):
        return None
    # A key that nginx refuses alone mostly needs keys of similar names; one that changes nothing is often turned on by a single other key.
    singly = [] if keys.refusal({key: settings[key]}, root) else [[name] for name in needs]
    leading = (list(needs)[:count] for count in range(1, len(needs) + 1))
    groups = ({name: needs[name] for name in names} for names in (*singly, *leading))
    needs = next(group for group in groups if fits(group))
    for candidate in list(needs):
        fewer = {name: value for name, value in needs.items() if name != candidate}
        needs = fewer if fits(fewer) else needs
    return needs


def _build_setting(
    values: Mapping[str, str], needs: Mapping[str, str], root: str, objects: tuple[str, ...], is_whole: bool = False
) -> KeySetting:
    objects_named = tuple(
        text for text in objects if any(json.loads(text)["metadata"]["name"] in value for value in values.values())
    )
    return KeySetting(
        values, keys.derive_checks(needs, {**needs, **values}, root), needs, root, is_whole, objects_named
    )


def _group_keys(singles: Sequence[KeySetting]) -> Iterator[tuple[set[str], str]]:
    """Yield (names of the keys, root) for each group of related keys; the root is the variant on which the keys are set.

    Two keys are related if one needs the other, or if they decide the same directive of nginx together.
    """
    groups: list[tuple[set[str], set[object], str]] = []
    for item in singles:
        names, subjects = {*item.values, *item.needs}, {check.subject for check in item.checks}
        near = [group for group in groups if group[0] & names or (group[1] & subjects and group[2] == item.root)]
        groups = [group for group in groups if group not in near]
        groups.append(
            (names.union(*(group[0] for group in near)), subjects.union(*(group[1] for group in near)), item.root)
        )
    return ((names, root) for names, _, root in groups)
