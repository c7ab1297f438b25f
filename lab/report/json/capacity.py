"""A capacity answer, and its checks, as JSON: plain data with stable keys, and the schema of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from lab.analysis.capacity.answer import Answer
from lab.analysis.capacity.checks import Check
from lab.analysis.capacity.costs import Bound

DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
TEXT, NUMBER, FLAG, COUNT = (
    {"type": "string"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "integer", "minimum": 0},
)
TEXTS = {"type": "array", "items": TEXT}


def as_json(found: Answer) -> dict[str, Any]:
    """Seconds, req/s and fractions; intervals null below six blocks. `schema` has it."""
    wanted, law = found.wanted, found.scaling
    return {
        "schema_version": 1,
        "wanted": {
            "rate_rps": wanted.rate_rps,
            "tls": wanted.tls,
            "keepalive": wanted.keepalive,
            "page_bytes": wanted.page_bytes,
            "utilisation": wanted.utilisation,
        },
        "runs": list(found.runs),
        "variant": found.cost.loads[0].arm.variant,
        "cost": {
            "cpu_per_request_s": found.cost.value_s,
            "interval_s": _pair(found.cost.interval_s),
            "blocks": found.cost.blocks,
            "how": found.cost.how,
            "bound": found.cost.bound,
            "basis": found.cost.basis,
        },
        "cores": found.cores,
        "cores_interval": _pair(found.cores_interval),
        "scaling": None
        if law is None
        else {
            "source": found.scaling_source,
            "sigma": law.sigma.value,
            "sigma_interval": [law.sigma.low, law.sigma.high],
            "kappa": law.kappa.value,
            "kappa_interval": [law.kappa.low, law.kappa.high],
            "r_squared": law.r_squared,
            "peak": law.peak,
        },
        "sizes": [
            {
                "cores": size.cores,
                "efficiency": size.efficiency,
                "serves_rps": size.serves_rps,
                "serves_interval_rps": _pair(size.serves_interval),
                "proxies": size.proxies,
                "proxies_interval": _pair(size.proxies_interval),
                "advised": size.advised,
            }
            for size in found.sizes
        ],
        "advised": {"cores": found.advised.cores, "proxies": found.advised.advised, "snippet": found.snippet},
        "checks": checks_json(found.checks),
        "assumptions": list(found.assumptions),
        "narrow": list(found.narrow),
    }


def checks_json(found: Sequence[Check]) -> list[dict[str, Any]]:
    return [
        {
            "arm": check.arm,
            "point": check.point,
            "source": check.source,
            "predicted_rps": check.predicted_rps,
            "interval_rps": None if check.low_rps is None else [check.low_rps, check.high_rps],
            "measured_rps": check.measured_rps,
            "error": check.error,
            "lower_bound": check.bound,
            "repeat": check.repeat,
            "inside": check.inside,
        }
        for check in found
    ]


def check_answer_json(runs: Sequence[str], found: Sequence[Check], unchecked: str) -> dict[str, Any]:
    """What `capacity --check --json` prints. `unchecked`: why there is no check; empty where there is one."""
    return {
        "schema_version": 1,
        "runs": list(runs),
        "checks": checks_json(found),
        "unchecked": "" if found else unchecked,
    }


def schema() -> dict[str, Any]:
    """Of what `capacity --json` prints: an answer, or with `--check` the checks alone."""
    pair = _or_null({"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2}) | {
        "description": "95 % interval; null below six blocks"
    }
    whole_pair = _or_null({"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2})
    size = {
        "cores": COUNT,
        "efficiency": NUMBER | {"description": "throughput / (cores x that of one core), by the law; 1 without one"},
        "serves_rps": NUMBER,
        "serves_interval_rps": pair,
        "proxies": COUNT,
        "proxies_interval": whole_pair,
        "advised": COUNT | {"description": "the interval's upper end, and one spare"},
    }
    check = {
        **dict.fromkeys(("arm", "point"), TEXT),
        "source": TEXT | {"description": "what it was predicted from"},
        "predicted_rps": NUMBER,
        "interval_rps": pair,
        "measured_rps": NUMBER,
        "error": NUMBER | {"description": "predicted / measured - 1"},
        "lower_bound": FLAG | {"description": "predicted from less load alone: the rate can only be higher"},
        "repeat": FLAG | {"description": "predicted from the same load of the A/A twin: nothing of the model is in it"},
        "inside": _or_null(FLAG),
    }
    checks = {"type": "array", "items": _object(check)}
    law = {
        "source": TEXT,
        **dict.fromkeys(("sigma", "kappa", "r_squared"), NUMBER),
        **dict.fromkeys(("sigma_interval", "kappa_interval"), pair),
        "peak": _or_null(NUMBER) | {"description": "cores beyond which a proxy gets slower; null = none in sight"},
    }
    wanted = {"rate_rps": NUMBER, "tls": TEXT, "keepalive": FLAG, "page_bytes": COUNT, "utilisation": NUMBER}
    cost = {
        "cpu_per_request_s": NUMBER | {"description": "CPU seconds of the proxy per good answer"},
        "interval_s": pair,
        "blocks": COUNT,
        "how": {"enum": ["measured", "between sizes", "beyond sizes"]},
        "bound": {"enum": list(get_args(Bound)), "description": "on which side of the true price and number these lie"},
        "basis": TEXT,
    }
    answer = {
        "schema_version": {"const": 1},
        "wanted": _object(wanted),
        "runs": TEXTS,
        "variant": TEXT,
        "cost": _object(cost),
        "cores": NUMBER,
        "cores_interval": pair,
        "scaling": _or_null(_object(law)) | {"description": "null = linear in cores"},
        "sizes": {"type": "array", "items": _object(size)},
        "advised": _object({"cores": COUNT, "proxies": COUNT, "snippet": TEXT}),
        "checks": checks,
        "assumptions": TEXTS,
        "narrow": TEXTS | {"description": "what to measure for a narrower answer"},
    }
    alone = {"schema_version": {"const": 1}, "runs": TEXTS, "checks": checks, "unchecked": TEXT}
    title = "What `capacity --json` prints, and `capacity --check --json`; seconds, requests per second, fractions"
    return {**DIALECT, "title": title, "oneOf": [_object(answer), _object(alone)]}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _pair(pair: Sequence[float] | None) -> list[float] | None:
    return None if pair is None else list(pair)
