"""The ledger: every published claim with two judgements side by side.

The first judgement is by the publication's own data (`lab.studies.claims.publications`). The second one is by the lab's runs,
with the measured effect and its run. The ledger has three forms: a table, JSON, and sentences for a notebook. A claim without a
rule has no row, but it is counted and listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.text import Text

from lab.analysis import evidence
from lab.report.grid import Notes, Part, TableCell, make_sentence, make_text_table
from lab.studies import claims
from lab.studies.boots import ONE_BOOT_CAVEAT
from lab.studies.claims import ANSWERS, KINDS, Answer
from lab.studies.claims.judging import ClaimVerdict, judge_claim
from lab.studies.claims.publications import OWN_ANSWERS, judge_by_own_data

OPENINGS: dict[Answer, str] = {
    "reproduced": "**It holds here** that",
    "contradicted": "**It does not hold here** that",
    "inconclusive": "**It stays open** whether",
    "not measurable here": "**This machine cannot show** whether",
}
"""The opening of a sentence with a claim's text, by the claim's answer."""


def judge_claims(study: str | None = None) -> list[ClaimVerdict]:
    """Judge all published claims, or those of one study, and return the verdicts in the order of claims.csv.

    A claim is judged twice: by its publication's own data, and by the runs in data/reference.

    Args:
        study: The study's key; None: all studies.

    Raises:
        UsageError: A rule is faulty.

    """
    runs, damaged = evidence.load_references()
    rules, judgements = claims.rules(), judge_by_own_data()
    return [
        replace(judge_claim(claim, rules.get(claim.id, []), runs, damaged), own=judgements.get(claim.id))
        for claim in claims.read_claims()
        if study in (None, claim.study)
    ]


def judge_checks(study: str | None = None) -> list[ClaimVerdict]:
    """Return the verdicts of the checks (facts that are known before any run) by the runs in data/reference.

    The rules of the checks are in lab/studies/claims/checks. The answer `reproduced` means that the runs show the known fact.

    Args:
        study: The key of the study whose checks are judged; None: all studies.

    """
    runs, damaged = evidence.load_references()
    return [
        judge_claim(claim, rules, runs, damaged) for claim, rules in claims.checks() if study in (None, claim.study)
    ]


def count_answers(verdicts: Sequence[ClaimVerdict]) -> str:
    """Return the counts of the answers to claims, in words: `102 claims: 12 reproduced (resting on 9 measurements), …`.

    The answers are those by the lab's runs. Claims that rest on the same measured number count as one measurement.
    """
    counts = _count_answers([verdict.answer for verdict in verdicts], ANSWERS).split(", ")
    for place, answer in enumerate(
        answer for answer in ANSWERS if any(verdict.answer == answer for verdict in verdicts)
    ):
        if number := len(group_by_measurement([verdict for verdict in verdicts if verdict.answer == answer])):
            counts[place] += f" (resting on {number} measurement{'s' if number > 1 else ''})"
    return f"{len(verdicts)} claims: {', '.join(counts)}"


def group_by_measurement(verdicts: Iterable[ClaimVerdict]) -> list[list[ClaimVerdict]]:
    """Group verdicts on claims by measurement: two verdicts that rest on the same measured number are in one group.

    Verdicts that rest on no measured number are left out.
    """
    groups: list[list[ClaimVerdict]] = []
    for verdict in verdicts:
        near = [group for group in groups if any(verdict.measurements & member.measurements for member in group)]
        merged = [*(member for group in near for member in group), verdict]
        groups = [*(group for group in groups if group not in near), *([merged] if verdict.measurements else [])]
    return groups


def own_counts(verdicts: Sequence[ClaimVerdict]) -> str:
    """Return the counts of the answers that the publications' own data give to claims, in words.

    Example: `by the publications' own data: 30 supported, 5 no data`.
    """
    text = _count_answers([verdict.own.answer for verdict in verdicts if verdict.own is not None], OWN_ANSWERS)
    return f"by the publications' own data: {text or 'none judged'}"


def _count_answers(answers: Sequence[str], order: Iterable[str]) -> str:
    return ", ".join(f"{answers.count(answer)} {answer}" for answer in order if answer in answers)


def sentences(verdicts: Sequence[ClaimVerdict]) -> str:
    """Return the verdicts on claims as a Markdown list: the claim, the answer, the measured effect and its runs.

    Claims that no rule judges yet are left out.
    """
    lines: list[str] = []
    for verdict in drop_unjudged(verdicts):
        head = f"- {verdict.claim.id}, **{verdict.answer}**: {verdict.claim.text}."
        details = "; ".join(filter(None, [verdict.effect, verdict.why]))
        parts = [head, f"{details}." if details else "", ", ".join(f"`{run}`" for run in verdict.runs)]
        lines.append(" ".join(filter(None, parts)))
    return "\n".join(lines)


def assert_settled(verdicts: Sequence[ClaimVerdict], known: Sequence[ClaimVerdict] = ()) -> None:
    """Assert at the end of a notebook that its claims have complete verdicts and that its checks hold.

    A damaged file of a run does not fail the assertion: the verdict of its claim reports the damage.

    Args:
        verdicts: The verdicts of the claims.
        known: The verdicts of the checks, which are facts known before any run.

    Raises:
        AssertionError: A run lacks data that a claim's rule needs, or a claim was decided without a run. Or a verdict names no
            run or effect, or the runs do not show the fact of a check.

    """
    for verdict in (*verdicts, *known):
        name, answer = verdict.claim.id, verdict.answer
        gaps = [gap for finding in verdict.findings for gap in finding.gaps]
        assert not gaps, f"{name}: {', '.join(verdict.runs)} does not have what its rule asks for: {'; '.join(gaps)}"
        decided = answer in ("reproduced", "contradicted")
        assert verdict.findings or (verdict.why and not decided), f"{name}: {answer} without a run"
        explained = verdict.runs and (verdict.effect or any(finding.damaged for finding in verdict.findings))
        assert explained or not verdict.findings, f"{name}: {answer} without its run or effect"
    for verdict in known:
        for part in (part for finding in verdict.findings for part in finding.measured if part.test.bounded):
            assert part.value is not None and part.test.met(part.value), f"{verdict.claim.id}: {part.text}"


def write_answer(verdicts: Sequence[ClaimVerdict], *ids: str) -> str:
    """Return the paragraph for the head of a notebook, in Markdown: the results of some claims, then the counts of all verdicts.

    Each claim is followed by the measured number that decides it, or by the reason why there is none.

    Args:
        verdicts: The verdicts of all claims of the notebook.
        *ids: The ids of the claims whose results the paragraph has.

    """
    by_id = {verdict.claim.id: verdict for verdict in verdicts}
    by_opening: dict[str, list[str]] = {opening: [] for opening in OPENINGS.values()}
    for verdict in (by_id[name] for name in ids):
        text = verdict.claim.text
        deciding = [part for finding in verdict.findings for part in finding.measured if part.test.bounded]
        deciding = [part for part in deciding if part.holds is False] or deciding
        lowered = text[0].lower() + text[1:] if text[1:2].islower() or text[:2] == "A " else text
        clause = f"{lowered} ({deciding[0].text if deciding else verdict.why})"
        by_opening.setdefault(OPENINGS.get(verdict.answer, ""), []).append(clause)
    paragraphs = [f"{opening} {'; '.join(clauses)}." for opening, clauses in by_opening.items() if opening and clauses]
    return " ".join([*paragraphs, f"Of all {count_answers(verdicts)}."])


def drop_unjudged(verdicts: Sequence[ClaimVerdict]) -> list[ClaimVerdict]:
    """Return the verdicts without those of claims that are not judged yet, because they have no rule."""
    return [verdict for verdict in verdicts if verdict.answer != "not judged yet"]


def list_unjudged(verdicts: Sequence[ClaimVerdict]) -> list[str]:
    """Return one line for each study with unjudged claims, with their ids: `STUDY: not judged yet: ID, ID`.

    A claim (a published sentence) is unjudged if no rule says how to compare it with measurements.
    """
    by_study: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.answer == "not judged yet":
            by_study.setdefault(verdict.claim.study, []).append(verdict.claim.id)
    return [f"{study}: not judged yet: {', '.join(ids)}" for study, ids in by_study.items()]


# -- as people read it, and as data -------------------------------------------------------------------------


def page(verdicts: Sequence[ClaimVerdict], known: Sequence[ClaimVerdict] = (), linked: bool = False) -> list[Part]:
    """Return the ledger: a table with a row per claim (a published sentence) and its verdict, and notes below it.

    The notes list the claims without a rule, the counts of the answers, how each kind of claim is judged, and the checks.

    Args:
        verdicts: The verdicts of the claims.
        known: The verdicts of the checks (facts known before any run).
        linked: Whether to link claims to their notebooks and runs to their folders, with paths from the top of the checkout.

    """
    folders = {finding.run: finding.name for verdict in verdicts for finding in verdict.findings}
    folders |= {run: verdict.unable for verdict in verdicts if verdict.unable for run in verdict.runs}
    heads = ("claim", "says", "published", "its own data", "here", "measured", "run")
    table = make_text_table(heads, [list(_list_cells(verdict, folders, linked)) for verdict in drop_unjudged(verdicts)])
    notes = [*list_unjudged(verdicts), count_answers(verdicts), own_counts(verdicts), *explain_kinds(verdicts)]
    notes += [line.replace("- ", "check ", 1) for line in sentences(known).splitlines()]
    return [make_sentence(f"{ONE_BOOT_CAVEAT}."), table, Notes(tuple(map(Text, notes)))]


def _list_cells(verdict: ClaimVerdict, folders: dict[str, str], linked: bool) -> Iterator[str | TableCell]:
    """Yield the cells of a claim's row in the ledger's table.

    Args:
        verdict: The claim's verdict.
        folders: Id of a run → name of its folder in data/reference.
        linked: Whether to link the claim to its notebook and the runs to their folders.

    """
    claim, judgement = verdict.claim, verdict.own
    yield f"[{claim.id}](notebooks/{claim.study}.ipynb)" if linked else claim.id
    yield claim.text
    yield claim.value
    yield TableCell(judgement.answer, strong=True, tail=f": {judgement.sentence}") if judgement else ""
    yield TableCell(verdict.answer, strong=True)
    yield "; ".join(filter(None, [verdict.effect, verdict.why]))
    places = [(run, folders.get(run) if linked else None) for run in verdict.runs]
    targets = {finding.run: f" on {finding.target}" for finding in verdict.findings}
    linked_runs = ((run, f"[{name}](data/reference/{name})" if name else f"`{run}`") for run, name in places)
    yield ", ".join(f"{text}{targets.get(run, '')}" for run, text in linked_runs)


def explain_kinds(verdicts: Sequence[ClaimVerdict]) -> list[str]:
    """Return a line for each kind of claim that occurs among the verdicts: how claims of this kind are judged."""
    kinds = {verdict.claim.kind for verdict in verdicts}
    return [f"how a claim of kind `{kind}` is judged: {text}" for kind, text in KINDS.items() if kind in kinds]


def list_verdicts(verdicts: Sequence[ClaimVerdict], checks: Sequence[ClaimVerdict] = ()) -> dict[str, Any]:
    """Return the data that `ledger --json` prints: claims, checks, counts, and the meaning of each answer and kind of claim.

    Args:
        verdicts: The verdicts of the claims.
        checks: The verdicts of the checks (facts known before any run).

    """
    return {
        "answers": ANSWERS,
        "own_answers": OWN_ANSWERS,
        "kinds": KINDS,
        "counts": count_answers(verdicts),
        "own_counts": own_counts(verdicts),
        "claims": verdicts,
        "checks": checks,
    }
