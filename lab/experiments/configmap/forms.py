"""What people hand over that is no YAML as it stands → the YAML or JSON texts in it, or why there is none. Pure.

    keep-alive=300                            what `kubectl create configmap --from-env-file` takes
    helm upgrade … --set controller.config.keep-alive=300; kubectl create configmap … --from-literal=keep-alive=300
    values = [<<-EOT … EOT]                   a heredoc of Terraform's, or of a shell's: kubectl apply -f - <<EOF
    terraform show -json                      what Terraform's set, yamlencode(…) and variables come to
    ```yaml … ```                             copied out of a README

Refuses what kubectl and Helm print for people, templates and nginx's own configuration, with the command or the keys that are meant.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence

from lab.base.errors import UsageError
from lab.targets.local.configmap import KEYS
from lab.targets.local.counterparts import directives_led

KUBECTL = "kubectl -n ingress-nginx get configmap ingress-nginx-controller -o yaml"
HELM = "helm -n ingress-nginx get values ingress-nginx -o yaml"
_SEALED = (
    (re.compile(r"\$ANSIBLE_VAULT;"), "ansible-vault view"),
    (re.compile(r"-----BEGIN AGE ENCRYPTED FILE-----|age-encryption\.org/"), "age -d"),
    (re.compile(r"-----BEGIN PGP MESSAGE-----"), "gpg -d"),
)
"""A whole file's first words → what opens it."""
_TABLE = re.compile(r"^(Name: +\S+$|(?:NAMESPACE +)?NAME +DATA +AGE)", re.MULTILINE)
_FAILED = re.compile(
    r"(?:Error from server|Unable to connect to the server|The connection to the server|Error: release: not found)\b.*"
)
"""What kubectl and helm say instead of what was asked for."""
_DIFF = re.compile(r"^(?:diff --git |--- \S.*\n\+\+\+ \S|@@ -\d)", re.MULTILINE)
_CONFLICT = re.compile(r"^<{7}(?: .*)?$", re.MULTILINE)
_COMMAND = re.compile(r"^(?:sudo +)?(helm|kubectl|oc) +(?!.*<<)", re.MULTILINE)
_OPTION = re.compile(
    r"--(set-json|set|set-string|set-literal|from-literal|patch|p"
    r"|values|f|set-file|from-file|from-env-file|patch-file|reuse-values|reset-then-reuse-values)(?:=(.*))?",
    re.DOTALL,
)
_IN_HELMS_ORDER = ("set-json", "set", "set-string", "set-literal")
"""Each over those before it, however the command has them (pkg/cli/values: MergeValues)."""
_OWN = (*_IN_HELMS_ORDER, "from-literal", "patch", "p")
"""Options that hold what they set."""
_COMMA = re.compile(r"(?<!\\),(?![^{]*\})")
_PRINTED = {"helm": HELM}
_PRINTS = "the command itself with --dry-run=client -o yaml"
"""What prints all that a command of another program sets."""
_RELEASE = re.compile(r"^(?:LAST DEPLOYED: |USER-SUPPLIED VALUES:$(?=[\s\S]*^COMPUTED VALUES:$))", re.MULTILINE)
_AROUND = re.compile(r"^(?:```.*|\$ (?:kubectl|oc|helm) .*|(?:USER-SUPPLIED|COMPUTED) VALUES:)$", re.MULTILINE)
_FENCED = re.compile(r"^```(?:ya?ml|json)?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_ENV = re.compile(r"(?:export +)?([-._a-zA-Z0-9]+)=(.*)")
_HCL = re.compile(
    r"^(?:(?:resource|module|locals|variable|data|provider|set|set_sensitive)\b[^:\n$]*\{|(?:set|values) *= *\[)",
    re.MULTILINE,
)
_HCL_COMMENT = re.compile(r"^[ \t]*(?:#|//).*$", re.MULTILINE)
_HCL_SETS = re.compile(
    r"controller\.config\b|\b(?:yamlencode|jsonencode|templatefile|file)\("
    r"|^(?![ \t]*\"?(?!values\b)[\w./-]+\"? *=).*?\b(?:(?:var|local)\.|module\.\w+\.\w|data\.\w+\.\w+\.\w)"
    r"|(?:^|[{,])[ \t]*[\"(]*([a-z0-9-]+)[\")]* *[=:]",
    re.MULTILINE,
)
"""Where a file of Terraform's may set a key outside of heredocs: by `set`, by functions, by variables in `values`, as an attribute of that name."""
_HCL_FAULT = "is Terraform's language, in which YAML is read in heredocs alone"
_HCL_FILLED = re.compile(r"(?<![$%])[$%]\{")
_SHELL = re.compile(r"^(?:\$ +)?(?:sudo +)?(?:cat|tee|helm|kubectl|oc)\b.*<<-?", re.MULTILINE)
_HEREDOC = re.compile(r"<<-? *['\"]?(\w+)['\"]?[^\n]*\n(.*?)\n[ \t]*\1$", re.MULTILINE | re.DOTALL)
_HERE = re.compile(r"<<-? *['\"]?\w+['\"]?")
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB]\w\w)\\u([dD][c-fC-F]\w\w)")


def texts(place: str, text: str, into: str) -> tuple[list[str], list[str]]:
    """One where it is YAML as it stands, with its lines where they were; none is no fault yet; and notes of what it takes from other files.

    UsageError for what is printed for people.

    `into`: see `lab.base.handing.again`.
    """
    if sealed := next((how for form, how in _SEALED if form.match(text)), None):
        raise UsageError(place, "is encrypted", f"decrypt it first: {sealed} FILE | {into}")
    if _RELEASE.search(text):
        raise UsageError(place, "is what helm prints of a whole release", f"use: {HELM} | {into}")
    if printed := _TABLE.search(text):
        raise UsageError(
            place, f"is what kubectl prints for people ({printed[0].split()[0]} …)", f"use: {KUBECTL} | {into}"
        )
    if failed := _FAILED.match(text.lstrip()):
        raise UsageError(place, f"is the error of a command that failed: {failed[0][:100]}", f"use: {KUBECTL} | {into}")
    if conflict := _CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        raise UsageError(place, f"line {line}: a merge that was not finished (<<<<<<<)", "resolve it first")
    if _DIFF.search(text):
        raise UsageError(place, "is a difference between two files", "give one of the two")
    if commands := _commands(place, text, into):
        return commands
    if found := _json(text):
        return found, []
    if (pairs := _pairs(text)) is not None:
        return [json.dumps(pairs)], []
    if _HCL.search(text):
        return _terraform(place, text, into), []
    if _SHELL.search(text) and (bodies := [body for _, body in _HEREDOC.findall(text)]):
        return _with_heredocs(place, text, bodies, into)
    _refuse_directives(place, text)
    if (fenced := list(_FENCED.finditer(text))) and _FENCED.sub("", text).strip():  # a page, with words around them
        return ["\n" * text.count("\n", 0, each.start(1)) + each[1] for each in fenced], []
    return [_AROUND.sub("", text)], []


def _terraform(place: str, text: str, into: str) -> list[str]:
    """The YAML in a file's heredocs. UsageError where it sets more than they hold: what that comes to Terraform alone knows."""
    remedy = f"use what it comes to, once it is applied: terraform show -json | {into}"
    plain = _HCL_COMMENT.sub("", text)
    bodies = [(match.start(2), match[2]) for match in _HEREDOC.finditer(plain)]
    outside = _HEREDOC.sub(lambda match: "\n" * match[0].count("\n"), plain)
    for found in _HCL_SETS.finditer(outside):
        if found[1] is None or found[1] in KEYS:
            line = outside.count("\n", 0, found.end())
            said = outside.splitlines()[line].strip()[:60]
            raise UsageError(place, f"line {line + 1}: `{said}` {_HCL_FAULT}", remedy)
    for start, body in bodies:
        if filled := _HCL_FILLED.search(body):
            line = plain.count("\n", 0, start + filled.start()) + 1
            raise UsageError(place, f"line {line}: {filled[0]} … }} is filled in by Terraform", remedy)
    if not bodies:
        raise UsageError(place, _HCL_FAULT, remedy)
    return [textwrap.dedent(body).replace("$${", "${").replace("%%{", "%{") for _, body in bodies]


def _commands(place: str, text: str, into: str) -> tuple[list[str], list[str]] | None:
    """What commands of helm and kubectl set, as a release's parameters, keys or a patch, with notes; None where it is no such command."""
    lines = [
        line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    if text.startswith("#!"):  # a script, of which other lines set nothing
        lines = [line for line in lines if _COMMAND.match(line.strip())]
    programs = [_COMMAND.match(line.strip().removeprefix("$ ")) for line in lines]
    if not lines or not all(programs):
        return None
    try:
        given = [
            (str(program and program[1]), *each)
            for program, line in zip(programs, lines, strict=True)
            for each in _options(line)
        ]
    except ValueError:  # a quote without its other half
        return None
    ordered = [(kind, value) for kind in _IN_HELMS_ORDER for _, option, value in given if option == kind]
    try:
        parameters = [each for kind, value in ordered for each in _parameters(kind, value)]
    except (ValueError, RecursionError) as error:
        raise UsageError(place, f"a --set-json is no JSON: {error}", "correct it: helm refuses it") from None
    pairs = [value.partition("=") for _, option, value in given if option == "from-literal"]
    literals = {name: said for name, _, said in pairs}
    patches = [value for _, option, value in given if option in ("patch", "p")]
    notes = [
        f"{'--' if len(option) > 1 else '-'}{f'{option} {value}'.strip()}: what it holds is not in the command:"
        f" {_PRINTED.get(program, _PRINTS)} | {into}"
        for program, option, value in given
        if option not in _OWN and not re.match(r"-$|/dev/stdin$|<\(", value)
    ]
    found = [json.dumps(each) for each in (parameters, literals) if each] + patches
    return (found, notes) if found or notes else None


def _options(line: str) -> Iterator[tuple[str, str]]:
    """(name, value) of those that set something, or say where that is."""
    words = shlex.split(line)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if option := _OPTION.fullmatch(f"-{word}" if re.match(r"-[pf](?:=|$)", word) else word):
            flag = option[1].endswith("reuse-values")
            yield option[1], (option[2] or "") if flag else following if option[2] is None else option[2]


def _parameters(kind: str, value: str) -> Iterator[dict[str, object]]:
    """Of the value of a --set: names and values, as a release's parameters have them."""
    if kind == "set-json":
        yield from _of_json(value)
        return
    for each in [value] if kind == "set-literal" else _COMMA.split(value):
        name, _, said = each.partition("=")
        listed = re.fullmatch(r"\{(.*)\}", said, re.DOTALL) if kind != "set-literal" else None
        null = kind == "set" and said == "null"  # which takes the key away
        plain = said.replace("\\,", ",") if kind != "set-literal" else said
        yield {"name": name, "value": listed[1].split(",") if listed else None if null else plain}


def _of_json(value: str) -> Iterator[dict[str, object]]:
    """Of `name={…},other=1`, or of one object of values. ValueError for what is no JSON."""
    if value.lstrip().startswith("{"):
        yield from ({"name": name, "value": item} for name, item in json.loads(value).items())
        return
    name, _, rest = value.partition("=")
    rest = rest.lstrip()
    item, end = json.JSONDecoder().raw_decode(rest)
    yield {"name": name, "value": item}
    if following := rest[end:].lstrip(" ,"):
        yield from _of_json(following)


def _with_heredocs(place: str, text: str, bodies: list[str], into: str) -> tuple[list[str], list[str]]:
    """What a shell's heredocs hold, and what its commands set beside them: with helm's they are one release's."""
    outside = _HEREDOC.sub(lambda match: _HERE.sub("", match[0].partition("\n")[0]), text.replace("\\\n", " "))
    parts = [part.strip().removeprefix("$ ") for line in outside.splitlines() for part in re.split(r"\s\|\s", line)]
    set_by_helm, set_by_kubectl = (
        _commands(
            place,
            "\n".join(part for part in parts if (program := _COMMAND.match(part)) and (program[1] == "helm") is helms),
            into,
        )
        or ([], [])
        for helms in (True, False)
    )
    notes = [*set_by_helm[1], *set_by_kubectl[1]]
    if set_by_helm[0]:
        release = {"values": bodies, "set": [item for each in set_by_helm[0] for item in json.loads(each)]}
        bodies = [json.dumps(release)]
    return [*bodies, *set_by_kubectl[0]], notes


def _refuse_directives(place: str, text: str) -> None:
    """UsageError for nginx's own configuration, with each directive's key."""
    if (told := directives_led(text)) is not None:
        remedy = f"keys that set it: {told}" if told else "put it in a ConfigMap, after `http-snippet: |`"
        raise UsageError(place, "is nginx's own configuration, not a ConfigMap", remedy)


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
