"""The index of the proxies' settings: each setting's measured effect on every target, and published claims about it.

    access-log-off  →  local −7.9 %, apiserver −6.8 %, kind −41.0 %: better; qinng published the same

A setting is a knob, or several knobs that a variant adds to its baseline at once. `just maintain readme` writes the settings as
JSON into `FILE`, since it takes long to read all committed runs. The command `settings` reads this file; the report computes the
settings anew. Every value is text, as a page shows it:

    name, title, system     system: the root variant (without knobs) that has the setting
    sets                    NAME=VALUE, a list
    verdict, advice         the verdict in one word (`ADVICE`), and what to do
    effects                 the effect on each target, at the load that most targets have
    others                  the effects at other loads or against other baselines
    elsewhere               the effects in runs of other machines, targets or programs; verdicts do not use them
    instrument              the reason why the setting is only useful for measurements; empty: it may be applied
    published               published statements, a list; claims that rest on one measurement follow each other
    claims, measurements    the number of claims that the lab's runs have measured, and the number of these measurements
    command                 the command that measures the setting

The decisions are those of the runs, and of the boots of the machine that measured them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.analysis import rerun
from lab.model.metrics import find_metric
from lab.model.names import BRING_UP_S, DEFAULT_TARGET
from lab.model.sweeps import DEFAULT_SWEEP
from lab.model.variants import knobs, kustomize, naming, variants
from lab.records import published
from lab.studies import claims, ledger
from lab.studies.claims.judging import ClaimVerdict
from lab.studies.steps import TuningStep

FILE = Path(__file__).resolve().parents[2] / "data" / "settings.json"
TARGETS = ("local", "apiserver", "kind")
"""The targets that an index has a column for."""
ADVICE: Mapping[str, str] = {
    "better": "apply it",
    "worse": "do not apply it",
    "depends": "better at one load or target, worse at another",
    "equivalent": "no change needed",
    "inconclusive": "no change needed unless a difference within the interval matters to you",
    "not measured": "no committed run has it",
}
"""What to do, by verdict; the verdicts in the order of the index."""
Setting = Mapping[str, Any]
"""A setting as JSON data; the module lists its keys."""


def read_settings() -> list[Setting]:
    """Return the settings from data/settings.json, in the form that this module's docstring describes."""
    return json.loads(FILE.read_text("utf-8"))


def make_settings(
    steps: Sequence[TuningStep], verdicts: Sequence[ClaimVerdict], elsewhere: Sequence[TuningStep] = ()
) -> list[Setting]:
    """Return an entry for every setting: each knob of the manifests, and each combination of knobs that a run measured together.

    An entry has what committed runs show of the setting on each target, and what was published about it. Settings are ordered by verdict:
    first better, worse and mixed ones, then equivalent, inconclusive and unmeasured ones.

    Args:
        steps: The tuning steps (a variant against its baseline at a load point) of the committed runs.
        verdicts: The verdicts of the published claims.
        elsewhere: The tuning steps in runs of other machines, targets or programs.

    Returns:
        JSON data; the module's docstring lists the keys.

    """
    by_knobs: dict[tuple[str, ...], list[TuningStep]] = {(name,): [] for name in knobs.knob_names()}
    for step in (step for step in steps if step.knobs and {(name,) for name in step.knobs} <= by_knobs.keys()):
        by_knobs.setdefault(tuple(sorted(step.knobs)), []).append(step)
    rules, variant_of = claims.rules(), variants.map_components()
    settings = [
        {
            **_make_setting(names, variant_of[names[0]], _rank(of_knobs), verdicts, rules),
            "elsewhere": [_describe(step) for step in elsewhere if tuple(sorted(step.knobs)) == names],
        }
        for names, of_knobs in by_knobs.items()
    ]
    return sorted(settings, key=lambda setting: ([*ADVICE].index(setting["verdict"]), setting["name"]))


def _rank(steps: Sequence[TuningStep]) -> list[list[TuningStep]]:
    """Group the tuning steps of a setting, and return the groups with the most important one first.

    A tuning step is a variant against its baseline at a load point. The steps of a group have the same load, metric and baseline,
    and differ in the target. If several runs on a target have the step, the group contains that of the run with the most blocks
    (repetitions).

    Groups whose baseline is a root variant (one without knobs) come first. Among these, groups with more targets come first, then those in
    a closed loop (without an offered rate).
    """
    groups: dict[tuple[str, ...], dict[str, TuningStep]] = {}
    for step in sorted(steps, key=lambda step: (step.blocks, step.run)):
        groups.setdefault((step.against, step.point, step.load, step.metric), {})[step.target] = step
    order = list(dict.fromkeys((*TARGETS, *BRING_UP_S)))
    ranked = [sorted(group.values(), key=lambda step: order.index(step.target)) for group in groups.values()]
    return sorted(
        ranked,
        key=lambda group: (
            bool(naming.split_name(group[0].against)[1]),
            -len(group),
            "closed loop" not in group[0].load,
            group[0].point,
        ),
    )


def _make_setting(
    names: Sequence[str],
    unmeasured: str,
    ranked: Sequence[Sequence[TuningStep]],
    verdicts: Sequence[ClaimVerdict],
    rules: Mapping[str, Sequence[claims.ClaimRule]],
) -> Setting:
    """Return the entry of one setting as JSON data; the module's docstring lists the keys.

    Args:
        names: The names of the setting's knobs.
        unmeasured: The variant to measure if no run has the setting.
        ranked: The setting's tuning steps in groups, as `_rank` returns them.
        verdicts: The verdicts of the published claims.
        rules: Id of a claim → its rules.

    """
    own = [knobs.load_knob(name) for name in names]
    arms = [step.arm for group in ranked for step in group] or [unmeasured]
    name = names[0] if len(own) == 1 else arms[0]
    effects, *others = [[_describe(step) for step in group] for group in ranked] or [[]]
    target = next(
        (place for place in ("apiserver", *TARGETS) if any(item["target"] == place for item in effects)), "local"
    )
    short, sweep = name if naming.find_present_name(name) == arms[0] else arms[0], own[-1].sweep
    verdict = _conclude([effects, *others])
    instrument = "; ".join(knob.only_to_measure_by for knob in own if knob.only_to_measure_by)
    about = [item for item in verdicts if _concerns(item, rules.get(item.claim.id, ()), own, arms)]
    measured = ledger.group_by_measurement(about)
    return {
        "name": name,
        "title": own[0].title if len(own) == 1 else ranked[0][0].title,
        "system": variants.load_chain(arms[0])[0].name,
        "sets": list(dict.fromkeys(text for knob in own for text in _list_values(knob))),
        "verdict": verdict,
        "advice": f"only to measure by: {instrument}" if instrument else ADVICE[verdict],
        "instrument": instrument,
        "effects": effects,
        "others": [effect for group in others for effect in group],
        "published": [
            *(f"{knob.study}: {knob.published}" for knob in own if knob.published),
            *(
                f"{_name_author(item)}, {item.claim.id}: {item.claim.text}"
                f"{f' ({item.claim.value})' if item.claim.value else ''}: {item.answer}"
                f"{', by the same measurement' if place else ''}"
                for group in (*measured, *([item] for item in about if not item.measurements))
                for place, item in enumerate(group)
            ),
        ],
        "claims": sum(map(len, measured)),
        "measurements": len(measured),
        "command": f"just bench {short}{rerun.place(target)}"
        if sweep == DEFAULT_SWEEP
        else rerun.bench(short, sweep, target),
    }


def _describe(step: TuningStep) -> dict[str, str]:
    metric = find_metric(step.metric)
    return {
        "target": step.target,
        "change": step.text.partition(" [")[0],
        "effect": step.text + (f" of {metric.with_unit(step.level_s)}" if metric.cost and step.level_s else ""),
        "word": step.decision.value if step.agree else "inconclusive",
        "metric": metric.title,
        "short": metric.short,
        "against": step.against,
        "point": step.point,
        "load": step.load,
        "boots": step.boots if step.agree else f"boots differ: {step.boots}",
        "run": step.folder,
        "program": step.program,
        **({"machine": step.machine} if step.machine else {}),
    }


def _conclude(groups: Sequence[Sequence[Mapping[str, str]]]) -> str:
    """Return the verdict on a setting in one word, for example `better` or `depends`; ADVICE has all.

    The verdict rests on the effects, at any load, against the baseline of the first group. Effects on the target `local` are used only if
    there are no others, since that target runs no controller.

    Args:
        groups: The effects in groups, the most important group first. An effect's `word` is its decision.

    """
    effects = [effect for group in groups for effect in group if effect["against"] == groups[0][0]["against"]]
    words = {effect["word"] for effect in effects if effect["target"] != DEFAULT_TARGET}
    words = words or {effect["word"] for effect in effects} or {"not measured"}
    return "depends" if {"better", "worse"} <= words else next(word for word in VERDICTS if word in words)


VERDICTS = ("better", "worse", "inconclusive", "equivalent", "not measured")
"""The decisions about a setting's effects; the first that one of them has is the verdict."""


def _list_values(knob: knobs.Knob) -> Iterator[str]:
    """Yield what a knob (one setting) sets, as NAME=VALUE texts, from the file of its kustomize component.

    The entries of its ConfigMaps come first. Then come its read-backs (checks of a running system) that have a name, each
    with the value that the check expects. No running system is read.
    """
    content = kustomize.read_yaml(knobs.MANIFESTS / "components" / knob.name / "kustomization.yaml", knob.name)
    for generator in content.get("configMapGenerator", []):
        yield from map(str, generator.get("literals", []))
    yield from (f"{check.name}={check.value}" for check in knob.readback if check.name)


def _concerns(
    verdict: ClaimVerdict, rules: Sequence[claims.ClaimRule], own: Sequence[knobs.Knob], arms: Sequence[str]
) -> bool:
    """Return whether a claim (a published sentence) is about a setting, which is one knob or several knobs.

    It is, if the rules of the claim measure an arm with the setting. It also is, if the setting is a single knob, and the claim
    names a published parameter that this knob sets.

    Args:
        verdict: The verdict of the claim.
        rules: The claim's rules.
        own: The knobs of the setting.
        arms: The arms (variants in runs) with the setting.

    """
    named = {f"{verdict.claim.study}/{parameter}" for parameter in _read_row(verdict)["parameters"].split(";")}
    judged = {test.variant or rule.variant for rule in rules for test in rule.tests}
    return (len(own) == 1 and not named.isdisjoint(own[0].parameters)) or not judged.isdisjoint(arms)


def _name_author(verdict: ClaimVerdict) -> str:
    """Return the origin of a claim: the name of its document (`envoy-edge`) if known.

    Otherwise it is the author of the publication, with the year if known: `DigitalOcean (2022)`.
    """
    source, document = (
        published.list_sources()[verdict.claim.study],
        _read_row(verdict)["source_lines"].partition(" of ")[2],
    )
    author = source.author.partition(";")[0].partition(",")[0]
    return document or author + (f" ({source.date[:4]})" if source.date else "")


def _read_row(verdict: ClaimVerdict) -> Mapping[str, str]:
    return next(row for row in published.read_texts("claims") if row["claim_id"] == verdict.claim.id)
