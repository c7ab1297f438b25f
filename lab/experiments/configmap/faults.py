"""Keys that nginx does not take here → why: nobody's fault but this place's, another key's, or a refusal that the controller meets, too.

open() "/etc/nginx/x.conf" failed          not measurable here: it needs what only your cluster can have: …
zero size shared memory zone "one"         depends on http-snippet, which cannot be had here: …
unknown directive "foo"                    nginx refuses it, and so the controller the whole file: …
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lab.targets.local import checker, keys, modules

_ELSEWHERE = re.compile(
    r"host not found in |MMDB_open\(|dlopen\(|(?:open|opendir|BIO_new_file|glob)\(|cannot load certificate|SSL_\w+\(\"/"
)
"""How nginx tells of a name or a file that is not here, and that a controller may have (mounted, or by its cluster's DNS)."""
_UNDEFINED = re.compile(r"unknown (?!directive)|is unknown|zero size|host not found in upstream")
"""How nginx tells of a variable, a zone, a format, an upstream that another part of the configuration makes."""
_QUOTED = re.compile(r'"([^"]+)"')
_INCLUDE = re.compile(r"(?:^|[;{}])\s*include\s", re.MULTILINE)
_SWITCH = re.compile(r"^(?:use|enable)-")
"""What a key that turns a module on has before the module's name, with which its variables begin."""
_REFUSED = "nginx refuses"


def of(
    asked: Mapping[str, str],
    taken: Mapping[str, str],
    unrealised: Mapping[str, str],
    variant: str,
    beside: keys.Beside,
) -> dict[str, str]:
    """Key → why it is not among those that nginx takes. `unrealised`: other keys of the file, which only other targets realise."""
    told = {key: keys.refusal({**taken, key: text}, variant, beside) for key, text in asked.items() if key not in taken}
    own = {key: _own(text, {**taken, key: asked[key]}, variant, beside) for key, text in told.items()}
    found: dict[str, str] = {}
    for key, text in told.items():
        lost = {**{other: asked[other] for other in told if other != key}, **unrealised}
        if on := _defining(text, lost):
            why = _REFUSED if own.get(on, "").startswith(_REFUSED) else "cannot be had here"
            found[key] = f"depends on {on}, which {why}: {text}"
        else:
            found[key] = own[key]
    return found


def _own(told: str, whole: Mapping[str, str], variant: str, beside: keys.Beside) -> str:
    if lacking := modules.advice(keys.nginx_conf(whole, variant, beside)):
        return f"not measurable here: {lacking}"
    if _ELSEWHERE.match(told):
        return f"not measurable here: it needs what only your cluster can have: {told}"
    if checker.is_late(told):
        return f"not measurable here: whether nginx takes it cannot be said: {told}"
    return f"{_REFUSED} it, and so the controller the whole file: {told}"


def _defining(told: str, lost: Mapping[str, str]) -> str:
    """Of keys that are not there, the one that would have what nginx does not know; empty = none."""
    if not _UNDEFINED.search(told):
        return ""
    for word in _QUOTED.findall(told):
        for key, text in lost.items():
            subject = _SWITCH.sub("", key).replace("-", "_")
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) or word.startswith(f"{subject}_"):
                return key
    return next((key for key, text in lost.items() if _INCLUDE.search(text)), "")
