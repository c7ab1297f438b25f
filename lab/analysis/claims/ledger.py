"""The ledger: every published claim with two judgements side by side.

What the publication's own data say of it (`lab.analysis.claims.publications`), and what our runs do, with the effect and the run that it
rests on. Refuses to leave a claim out: what has no rule yet is counted. `lab.report.tables.ledger` shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lab.analysis import claims as claimed
from lab.analysis.claims import ANSWERS, Answer, claims, evidence, rules
from lab.analysis.claims.judging import Verdict, judged
from lab.analysis.claims.publications import OWN_ANSWERS, owned


def ledger(study: str | None = None) -> list[Verdict]:
    """Every claim in the order of claims.csv, or one study's, by its own data and on data/reference. UsageError for a faulty rule."""
    runs, damaged = evidence.references()
    known, own = rules(), owned()
    return [
        replace(judged(claim, known.get(claim.id, []), runs, damaged), own=own.get(claim.id))
        for claim in claims()
        if study in (None, claim.study)
    ]


def checks(study: str | None = None) -> list[Verdict]:
    """What is known beforehand (lab/analysis/claims/checks), judged on data/reference; `reproduced` says that it came out so."""
    runs, damaged = evidence.references()
    return [judged(claim, known, runs, damaged) for claim, known in claimed.checks() if study in (None, claim.study)]


def counts(verdicts: Sequence[Verdict]) -> str:
    """`102 claims: 3 reproduced, 12 not resolved, …`, without what there is none of."""
    return f"{len(verdicts)} claims: {_counted([verdict.answer for verdict in verdicts], ANSWERS)}"


def own_counts(verdicts: Sequence[Verdict]) -> str:
    """`by the publications' own data: 40 borne out, …`, likewise."""
    told = _counted([verdict.own.answer for verdict in verdicts if verdict.own is not None], OWN_ANSWERS)
    return f"by the publications' own data: {told or 'none judged'}"


def _counted(found: Sequence[str], order: Iterable[str]) -> str:
    return ", ".join(f"{found.count(answer)} {answer}" for answer in order if answer in found)


def sentences(verdicts: Sequence[Verdict], *ids: str) -> str:
    """Markdown for the head of a notebook: what these claims (all that are judged, unless named) came to, here and by their own data."""
    return "\n".join(_sentence(verdict) for verdict in judged_at_all(verdicts) if not ids or verdict.claim.id in ids)


def _sentence(verdict: Verdict) -> str:
    said = f"- {verdict.claim.id}, **{verdict.answer}**: {verdict.claim.text}."
    told = "; ".join(filter(None, [verdict.effect, verdict.why]))
    own = f"Its own data: **{verdict.own.answer}**: {verdict.own.sentence}." if verdict.own else ""
    return " ".join(
        filter(None, [said, f"{told}." if told else "", ", ".join(f"`{run}`" for run in verdict.runs), own])
    )


def settled(verdicts: Sequence[Verdict], known: Sequence[Verdict] = ()) -> None:
    """What a notebook asserts at its end. AssertionError where a claim that has a run is a gap (nothing there of what its rule
    asks for), where one without a run has a verdict, and where a check (`known`) did not come out as it must. A damaged file is told
    in its claim's verdict and ends no notebook.
    """
    for verdict in (*verdicts, *known):
        name, answer = verdict.claim.id, verdict.answer
        gaps = [gap for found in verdict.findings for gap in found.gaps]
        assert not gaps, f"{name}: {', '.join(verdict.runs)} does not have what its rule asks for: {'; '.join(gaps)}"
        if verdict.findings:
            assert answer in ("reproduced", "contradicted", "not resolved"), f"{name}: {answer}, and there is a run"
            told = verdict.why if any(found.damaged for found in verdict.findings) else verdict.effect
            assert verdict.runs and told, f"{name}: {answer} without its run or effect"
        else:
            assert answer not in ("reproduced", "contradicted"), f"{name}: {answer} without a run"
            assert verdict.why, f"{name}: {answer} without a reason"
            assert not verdict.runs or answer == "not measurable here", f"{name}: {answer} by a run without findings"
    for verdict in known:
        for part in (part for found in verdict.findings for part in found.measured if part.test.bounded):
            assert part.value is not None and part.test.met(part.value), f"{verdict.claim.id}: {part.text}"


def answer(verdicts: Sequence[Verdict], *ids: str) -> str:
    """Markdown, one paragraph for the head of a notebook: what these claims came to here, each with the number that decides; and all in numbers."""
    known = {verdict.claim.id: verdict for verdict in verdicts}
    named = [known[name] for name in ids]
    said = [
        f"{opening} {'; '.join(_that(verdict) for verdict in named if verdict.answer == word)}."
        for word, opening in OPENINGS.items()
        if word in [verdict.answer for verdict in named]
    ]
    return " ".join([*said, f"Of all {counts(verdicts)}."])


OPENINGS: dict[Answer, str] = {
    "reproduced": "**It holds here** that",
    "contradicted": "**It does not hold here** that",
    "not resolved": "**It stays open** whether",
    "not measurable here": "**This machine cannot show** whether",
}
"""Answer of a claim → how a sentence of its text begins."""


def _that(verdict: Verdict) -> str:
    """Its text within a sentence, and the number that decides, or why there is none."""
    text = verdict.claim.text
    deciding = [part for found in verdict.findings for part in found.measured if part.test.bounded]
    deciding = [part for part in deciding if part.holds is False] or deciding
    number = deciding[0].text if deciding else verdict.why
    lowered = text[0].lower() + text[1:] if text[1:2].islower() or text[:2] == "A " else text
    return f"{lowered} ({number})"


def judged_at_all(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Without those that have no rule yet."""
    return [verdict for verdict in verdicts if verdict.answer != "not judged yet"]


def left(verdicts: Sequence[Verdict]) -> list[str]:
    """Per study, the claims that have no rule yet."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.answer == "not judged yet":
            found.setdefault(verdict.claim.study, []).append(verdict.claim.id)
    return [f"{study}: not judged yet: {', '.join(_ranges(ids))}" for study, ids in found.items()]


def _ranges(ids: Sequence[str]) -> list[str]:
    """`DO-01 … DO-05` for ids that follow one another."""
    found: list[list[str]] = []
    for name in ids:
        letters, _, number = name.rpartition("-")
        last = found[-1][-1].rpartition("-") if found else None
        if last and last[0] == letters and number.isdigit() and last[2].isdigit() and int(number) == int(last[2]) + 1:
            found[-1].append(name)
        else:
            found.append([name])
    return [part[0] if len(part) == 1 else f"{part[0]} … {part[-1]}" for part in found]
