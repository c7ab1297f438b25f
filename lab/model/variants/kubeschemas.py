"""Kubernetes' JSON schemas for kubeconform, without a network: from the `kubernetes-validate` wheel, made relocatable.

The wheel's schemas refer to one another below https://kubernetes.io/api (`$id`, `/api/_definitions.json#…`), which
kubeconform would fetch. Refuses versions that the wheel does not hold.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from lab.base.errors import UsageError

CACHE = Path(__file__).resolve().parents[3] / ".cache" / "kubernetes-schemas"


def folder(version: str, cache: Path = CACHE) -> Path:
    """The folder of the strict schemas of one Kubernetes version (`1.34.0`), `deployment-apps-v1.json` and so on; made once."""
    found = cache / version
    if found.is_dir():
        return found
    spec = importlib.util.find_spec("kubernetes_validate")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            "kubernetes-validate", "this Python has no such package", "start it by `scripts/shell …`, which brings it"
        )
    wheel = Path(spec.submodule_search_locations[0]) / "kubernetes-json-schema"
    source = wheel / f"v{version}-local-strict"
    if not source.is_dir():
        known = sorted(path.name.removeprefix("v").removesuffix("-local-strict") for path in wheel.glob("*-strict"))
        raise UsageError(
            "kubernetes-validate", f"holds no schemas of Kubernetes {version}", f"known: {', '.join(known)}"
        )
    try:
        cache.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=cache))
        for path in source.glob("*.json"):
            (scratch / path.name).write_text(json.dumps(relocated(json.loads(path.read_text()))))
        scratch.chmod(0o755)
        try:
            scratch.rename(found)
        except OSError:  # another process was first
            shutil.rmtree(scratch)
    except OSError as error:
        raise UsageError(str(cache), f"cannot be written: {error.strerror}", "make it writable") from None
    return found


def report(answer: str) -> list[str]:
    r"""Lines of what `kubeconform -verbose -output json` found: of every file its faults, then how many objects are what.

    >>> report('{"resources": [{"filename": "/x/direct.yaml", "kind": "Service", "name": "a", "status": "statusValid"}]}')
    ['direct: Summary: 1 objects - Valid: 1, Invalid: 0, Errors: 0, Skipped: 0\\n']
    """
    files: dict[str, list[dict[str, str]]] = {}
    for item in json.loads(answer)["resources"] or []:
        files.setdefault(Path(item["filename"]).stem, []).append(item)
    lines: list[str] = []
    for name, items in sorted(files.items()):
        lines += [
            f"{name}: {item.get('kind')} {item.get('name')}: {item['msg']}\n" for item in items if item.get("msg")
        ]
        found = [item["status"].removeprefix("status") for item in items]
        counts = {"Valid": "Valid", "Invalid": "Invalid", "Errors": "Error", "Skipped": "Skipped"}
        told = ", ".join(f"{head}: {found.count(status)}" for head, status in counts.items())
        lines.append(f"{name}: Summary: {len(items)} objects - {told}\n")
    return lines


def relocated(schema: Any) -> Any:
    """The schema with references relative to its own folder, and without the `$id` that says it is elsewhere."""
    if isinstance(schema, dict):
        return {key: relocated(value) for key, value in schema.items() if key != "$id" or not isinstance(value, str)}
    if isinstance(schema, list):
        return [relocated(item) for item in schema]
    return schema.replace("/api/_definitions.json#", "_definitions.json#") if isinstance(schema, str) else schema
