"""A value that a tool was to decrypt or fill in first → what it is, and what makes a value of it. Pure.

    ENC[AES256_GCM,data:…]    "encrypted by SOPS", "decrypt it first: sops -d FILE"
    ${KEEP_ALIVE}             "filled in before it is applied", "fill it in first: envsubst < FILE"

The controller never sees one, so what it would make of it is nobody's question. nginx's own variables ($host, ${host}) are none: in
snippets and log formats everything that starts with $ is nginx's, in other texts what is written as its variables are, in small letters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from lab.experiments.configmap.yaml_text import Scalar, Value, text_at
from lab.targets.local.decoding import WRITTEN

_ENCRYPTED = (
    (re.compile(r"ENC\[AES256_GCM,"), "encrypted by SOPS", "decrypt it first: sops -d FILE"),
    (re.compile(r"ENC\[(?:PKCS7|GPG|GKMS)\b"), "encrypted by eyaml", "decrypt it first: eyaml decrypt -f FILE"),
    (re.compile(r"^\s*\$ANSIBLE_VAULT;"), "encrypted by Ansible: write what `ansible-vault decrypt` makes of it", ""),
    (re.compile(r"^(?:secret)?ref\+\w+://"), "names a secret", "fill it in first: vals eval -f FILE"),
    (re.compile(r"^<path:[^>]+>"), "names a secret", "fill it in first: argocd-vault-plugin generate FILE"),
)
_FILLED = "filled in before it is applied"
_VARIABLE = re.compile(r"\$\{\s*(\w+)\s*((?::?[-=?+]|:\d|[#%/^,])[^}]*)?\}[A-Za-z%]{0,2}|\$([A-Z_][A-Z0-9_]*)")
"""Of a shell's, with the unit that may stand behind it."""
_ANY_CASE = re.compile(r"\$\{\s*[A-Za-z_]")
_OTHER = re.compile(
    r"\$\{\{.*\}\}|\{\{.*\}\}|\$\(\w[\w.]*\)|#\{[\w.]+\}#?|@[A-Z]\w*@|%[A-Z]\w*%|__[A-Z]\w*__|<[A-Za-z][\w -]*>"
)


def placeholder(value: Scalar, kind: str, parameters: Collection[str] = ()) -> tuple[str, str]:
    """What it is, and a command that prints a file with what it stands for, empty where only people know; both empty where it is none.

    `kind`: of the key, empty where it is none. `parameters`: of the OpenShift template around it.
    """
    text = value.text
    if found := next(((told, command) for form, told, command in _ENCRYPTED if form.search(text)), None):
        return found
    if value.tag:
        return f"written as {value.tag}, which another tool reads: give what it makes of it", ""
    if any(re.search(rf"\$\{{\{{?{re.escape(name)}\}}", text) for name in parameters):
        return _FILLED, "fill it in first: oc process -f FILE -o yaml"
    if not kind or kind in WRITTEN:
        return "", ""
    if _OTHER.fullmatch(text.strip()):
        return f"{_FILLED}: give what comes of it", ""
    whole = _VARIABLE.fullmatch(text.strip())
    if (whole and (whole[3] or whole[2] or whole[1].isupper())) or (kind != "text" and _ANY_CASE.search(text)):
        return _FILLED, "fill it in first: envsubst < FILE"
    return "", ""


def parameters(docs: Iterable[Value]) -> set[str]:
    """Names that OpenShift's templates declare."""
    listed = [doc.get("parameters") for doc in docs if isinstance(doc, Mapping) and text_at(doc, "kind") == "Template"]
    return {name for each in listed if isinstance(each, list) for item in each if (name := text_at(item, "name"))}


def of_sops(field: str, value: Value) -> bool:
    """Whether it is what SOPS keeps of its own beside what it encrypts."""
    return field == "sops" and bool(text_at(value, "mac"))
