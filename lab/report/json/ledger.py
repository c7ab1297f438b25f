"""What `ledger --json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.analysis.claims import ANSWERS, KINDS, Answer
from lab.analysis.claims.judging import Verdict
from lab.analysis.claims.ledger import counts, own_counts
from lab.analysis.claims.publications import OWN_ANSWERS, OwnAnswer
from lab.report.json.printed import Printed


class LedgerJson(Printed):
    """Every claim, judged or not, with its findings and `own`, what both answers mean, how kinds are judged, and the checks."""

    answers: Mapping[Answer, str]
    own_answers: Mapping[OwnAnswer, str]
    kinds: Mapping[str, str]
    counts: str
    own_counts: str
    claims: Sequence[Verdict]
    checks: Sequence[Verdict]


def printed(verdicts: Sequence[Verdict], known: Sequence[Verdict] = ()) -> LedgerJson:
    return LedgerJson(
        answers=ANSWERS,
        own_answers=OWN_ANSWERS,
        kinds=KINDS,
        counts=counts(verdicts),
        own_counts=own_counts(verdicts),
        claims=verdicts,
        checks=known,
    )
