"""What people hand over that is no YAML as it stands → the YAML or JSON texts in it, or why there is none. Pure.

    keep-alive=300                            what `kubectl create configmap --from-env-file` takes
    values = [<<-EOT … EOT]                   a Terraform resource's heredoc
    ```yaml … ```                             copied out of a README

Refuses what kubectl and Helm print for people, templates and nginx's own configuration, with the command or the keys that are meant.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence

from lab.base.errors import UsageError
from lab.targets.local.counterparts import lead

HERE = "scripts/shell just bench --configmap -"
HOW = f"kubectl -n ingress-nginx get configmap ingress-nginx-controller -o yaml | {HERE}"
HELM = f"helm -n ingress-nginx get values ingress-nginx -o yaml | {HERE}"
_TABLE = re.compile(r"^(Name: +\S+$|(?:NAMESPACE +)?NAME +DATA +AGE)", re.MULTILINE)
_RELEASE = re.compile(r"^(?:LAST DEPLOYED: |USER-SUPPLIED VALUES:$(?=[\s\S]*^COMPUTED VALUES:$))", re.MULTILINE)
_AROUND = re.compile(r"^(?:```.*|\$ (?:kubectl|oc|helm) .*|(?:USER-SUPPLIED|COMPUTED) VALUES:)$", re.MULTILINE)
_ENV = re.compile(r"(?:export +)?([-._a-zA-Z0-9]+)=(.*)")
_HCL = re.compile(r"^(?:resource|module|locals|variable|data|provider|set)\b[^:\n]*\{$", re.MULTILINE)
_HEREDOC = re.compile(r"<<-?(\w+)\n(.*?)\n[ \t]*\1$", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"(?:^|[;{}])\s*([a-z][a-z0-9_]*)\s[^:#{};]*(?=[;{])", re.MULTILINE)
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB]\w\w)\\u([dD][c-fC-F]\w\w)")


def texts(place: str, text: str) -> list[str]:
    """One where it is YAML as it stands, with its lines where they were; none is no fault yet. UsageError for what is printed for people."""
    if _RELEASE.search(text):
        raise UsageError(place, "is what helm prints of a whole release", f"use: {HELM}")
    if printed := _TABLE.search(text):
        raise UsageError(place, f"is what kubectl prints for people ({printed[0].split()[0]} …)", f"use: {HOW}")
    if found := _json(text):
        return found
    if (pairs := _pairs(text)) is not None:
        return [json.dumps(pairs)]
    if _HCL.search(text):
        bodies = [textwrap.dedent(body) for _, body in _HEREDOC.findall(text)]
        if not bodies:
            raise UsageError(place, "is Terraform's language, in which YAML is read in heredocs alone", f"use: {HOW}")
        return bodies
    _refuse_directives(place, text)
    return [_AROUND.sub("", text)]


def _refuse_directives(place: str, text: str) -> None:
    """UsageError for nginx's own configuration, with each directive's key."""
    names = dict.fromkeys(_DIRECTIVE.findall(text))
    if names and all(re.fullmatch(r"\s*(#.*)?|.*[;{}]\s*(#.*)?", line) for line in text.splitlines()):
        blocks = {"events", "http", "server", "location", "upstream", "stream", "types", "map", "if"}
        told = "; ".join(f"{name} → {lead(name)}" for name in names if name not in blocks)
        raise UsageError(
            place,
            "is nginx's own configuration, not a ConfigMap",
            f"keys that set it: {told}" if told else "put it in a ConfigMap, after `http-snippet: |`",
        )


def _json(text: str) -> list[str]:
    """Each value of a stream of JSON; empty for anything else."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    decoder, found, at = json.JSONDecoder(), list[str](), 0
    while rest := text[at:].lstrip():
        start = len(text) - len(rest)
        try:
            _, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return []
        # YAML knows no characters in two halves, and lines are told as they are in the file.
        found.append("\n" * text.count("\n", 0, start) + _PAIR.sub(_whole, text[start:at]))
    return found


def _whole(halves: re.Match[str]) -> str:
    return halves[1] + json.loads(f'"\\u{halves[2]}\\u{halves[3]}"')


def _pairs(text: str) -> dict[str, str] | None:
    """Of lines `KEY=VALUE` and comments alone."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found: Sequence[re.Match[str] | None] = [_ENV.fullmatch(line) for line in lines]
    if not found or not all(found):
        return None
    return {pair[1]: pair[2] for pair in found if pair}
