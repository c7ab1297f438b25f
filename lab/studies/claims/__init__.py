"""The claims: the studies' sentences that can be true or false, and the rules that judge them.

The sentences are in data/published/claims.csv. Two judgements stand side by side: whether our runs support a claim (the files of this
folder), and whether the publication's own data do (`published/`, see `lab.studies.claims.publications`). KINDS describes how both judge a
claim of each kind.

Each claim has one place: a table of a TOML file of this folder, named by the claim's id. It has one of three forms:

    [ND-11]                                  it is measured:
    rule = "reproduced if …"                 in words, for people
    sweeps = ["kill"]                        runs of data/reference under one of these …
    variant = "grace-period-30+host-port"    … that measured this variant …
    target = "kind"                          … on this target (default "local"): runs of other targets do not count
    [[ND-11.tests]]                          all must hold; a test that fails contradicts the claim
    metric = "terminating_s"                 of lab.model.metrics, or a gauge
    points = "kill*"                         at every point of such a name that is no control run
    within = [20, 40]                        or above = …, or below = …, or like = ["OK-03", "OK-01"] for a ratio: within a
                                             factor of NEAR_FACTOR of the ratio of what these two claims published

    [OK-19]                                  it cannot be measured here:
    not_measurable = "one machine: …"

    [OK-21]                                  nothing is to be measured:
    background = "a guide value for planning, …"

lab/studies/claims/checks has rules of the same form for facts that no study claims and that are known beforehand. Its tables have a `text`
and `rules`, and its files are named by the study whose notebook shows them.

A claim may have several rules, `[[ID]]` each. The first rule with a run counts, damaged or not; a run too short for an interval counts only
where no rule has a longer one. If there is no run, and a run has recorded why it could not show a variant that a rule needs
(`not_measurable` of its record), that is the verdict. The tests in `shown_only` are shown with the effect and not judged. A claim without a table is
not judged yet. Refuses unknown keys, sweeps, variants, targets, metrics and claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from lab.analysis import rerun
from lab.base.errors import UsageError, did_you_mean, refuse_if, refuse_unknown
from lab.base.validation import read_toml, refuse_broken_rules, validate_table
from lab.model import sweeps
from lab.model.metrics import METRICS
from lab.model.names import BRING_UP_S, DEFAULT_TARGET
from lab.model.variants import variants
from lab.model.variants.naming import aliases, find_present_name, is_variant
from lab.records import published
from lab.studies.study_files import StrictModel

FOLDER = Path(__file__).parent
"""The folder of the claims' rules."""
CHECKS = FOLDER / "checks"
"""The folder of the checks' rules."""
SCHEMA = "lab/schema/claim.json"
"""The path of the rules' JSON schema."""
NEAR_FACTOR = 1.25
"""The factor within which a ratio counts as the published one.

Other machines, and a single run each, allow no closer agreement.
"""
SUGGESTED_BLOCKS = 10
"""The number of blocks (repetitions of a whole plan) that a verdict should rest on.

An interval needs fewer blocks. A verdict with fewer blocks than this reports how many it has.
"""

Answer = Literal["reproduced", "contradicted", "inconclusive", "not measurable here", "background", "not judged yet"]
"""The answer to a claim by our runs."""
ANSWERS: dict[Answer, str] = {
    "reproduced": "measured here by the claim's rule, with an interval, and it holds",
    "contradicted": "measured here by the claim's rule, with an interval, and it does not hold",
    "inconclusive": "the intervals leave both open, the load could not show it, or there is no whole run of it yet",
    "not measurable here": "one machine, these systems or this target cannot show it",
    "background": "nothing to measure: a guide, a question, or what a program's own source says",
    "not judged yet": "no rule is written yet",
}
"""The meaning of each answer."""

KINDS: Mapping[str, str] = {
    "table cell": "here, as its ratio to the table's reference cell (the reference cell itself to another one), of the same"
    f" blocks: the 95 % interval lies within a factor of {NEAR_FACTOR} of the published ratio, or within what its rule names. By its"
    " own data, whether the table prints the number, and, compared with the cell that its rule names, if any, whether it is not faster"
    " than one with less of the same work to do, and not slower than one with more of it to do or with fewer workers",
    "figure": "here, as its shape: the direction from one end of the load to the other, and bounds that the text names, never as"
    " a level of another machine, and never as a latency that the same load has without a proxy. By its own data, as what was"
    " read off the plot, with the uncertainty of reading it, against what the text says that it shows; of one run each",
    "stated": "here, as direction and size: an interval wholly on the side that is claimed, beyond what the baseline shows"
    " against itself, or within the size that is. By its own data, wherever the publication prints numbers of what the sentence is about",
    "hypothesis": "here, as the effect of taking the supposed cause away. By its own data, only if it was measured with and"
    " without that cause",
    "question": "here, background: nothing in it is true or false, and the claims that bear upon it are judged. By its own data,"
    " only if the publication answers it",
    "example": "here, as its ratio to another sample of the same tool; one that stands alone is background, as the level of"
    " another machine. By its own data, whether its numbers agree with one another",
}
"""The kind of a claim (claims.csv) → how both judgements are made of it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim: a sentence of a published study that can be true or false. It is a row of claims.csv.

    Attributes:
        id: The claim's id, for example `OK-03`.
        study: The key of the study whose document the claim comes from.
        kind: The kind of claim: `table cell`, `figure`, `stated`, `hypothesis`, `question` or `example`; `check` for a check of this
            project.
        text: The claim in words.
        published: The published value as text; empty: none.
        unit: The value's unit.
        note: A remark of this project.

    """

    id: str
    study: str
    kind: str
    text: str
    published: str
    unit: str
    note: str

    @property
    def value(self) -> str:
        """The value that a claim (a sentence of a publication) states, as text with its unit: `50 ms`; empty without a value."""
        return f"{self.published} {self.unit}".strip()

    @property
    def number(self) -> float | None:
        """The value that a claim (a sentence of a publication) states, as a number; None where it is not a single number."""
        try:
            return float(self.published)
        except ValueError:
            return None


class Other(StrictModel):
    """The other side of a comparison: another variant at the same load point, or the same variant at another load point."""

    variant: str | None = None
    points: str | None = Field(default=None, description="a pattern; it must fit one point")

    @model_validator(mode="after")
    def _check_present(self) -> Self:
        refuse_broken_rules(
            (self.variant is None and self.points is None, "tests: what is compared with needs a variant or points")
        )
        return self


class ClaimTest(StrictModel):
    """A `[[ID.tests]]` table: one test of a published claim. It names a number to measure, and where its 95 % interval must lie.

    The number is a metric of one variant, or its ratio to or difference from another one. Each block (repetition) of a run gives a value of
    it.
    """

    __test__ = False  # no test of pytest's
    metric: str
    variant: str | None = Field(default=None, description="none: the rule's")
    points: str = Field(default="*", description="a pattern of point names; control runs are never meant")
    control: bool = Field(default=False, description="the control runs are meant, and only they")
    minus: Other | None = Field(
        default=None,
        description="the blocks' differences; what the baseline shows against itself is added to the bound",
    )
    ratio_to: Other | None = Field(
        default=None, description="the blocks' ratios; what the baseline shows against itself is added to the bound"
    )
    above: float | None = None
    below: float | None = None
    within: tuple[float, float] | None = Field(default=None, strict=False)
    like: tuple[str, str] | None = Field(
        default=None,
        strict=False,
        description="two claims: `within` is then a factor of NEAR_FACTOR about the ratio of what they published",
    )

    @model_validator(mode="after")
    def _check_bound(self) -> Self:
        bounds = (self.above, self.below, self.within, self.like)
        refuse_broken_rules(
            (
                sum(bound is not None for bound in bounds) > 1,
                "tests: one of above, below, within and like says where the interval must lie",
            ),
            (
                self.like is not None and self.ratio_to is None,
                "tests.like: two claims have a ratio: ratio_to says to what it is one here",
            ),
            (
                self.within is not None and not self.within[0] <= self.within[1],
                "tests.within: expected [low, high]",
            ),
            (self.minus is not None and self.ratio_to is not None, "tests: one of minus and ratio_to at most"),
        )
        if self.metric not in METRICS and "/" not in self.metric:
            raise ValueError(f"tests.metric: unknown metric {self.metric!r}: {did_you_mean(self.metric, METRICS)}")
        return self

    @property
    def bounded(self) -> bool:
        """True if this test of a claim has a bound: `above`, `below`, `within` or `like`.

        The number of a test without a bound is only shown, and not judged.
        """
        return any(bound is not None for bound in (self.above, self.below, self.within, self.like))

    def met(self, value: float) -> bool:
        """Return whether a single value lies within the test's bound, regardless of any interval or noise floor."""
        if self.within is not None:
            return self.within[0] <= value <= self.within[1]
        return (self.above is None or value > self.above) and (self.below is None or value < self.below)


class ClaimRule(StrictModel):
    """The rule by which the lab's runs judge one published claim: tests, or a reason why there are none. It is a table of a TOML file."""

    rule: str = Field(default="", description="the rule in words, as the ledger prints it")
    sweeps: list[str] = Field(default_factory=list[str])
    variant: str = ""
    target: str = Field(default=DEFAULT_TARGET, description="runs of this target alone are held against the rule")
    given: list[ClaimTest] = Field(
        default_factory=list[ClaimTest], description="what the load must have done; else the claim is inconclusive"
    )
    tests: list[ClaimTest] = Field(default_factory=list[ClaimTest])
    shown_only: list[ClaimTest] = Field(
        default_factory=list[ClaimTest], description="shown with the effect, without a bound"
    )
    sustained: bool = Field(
        default=False,
        description="only loads made by --sustained count, and a comparison must hold in each third of their samples",
    )
    not_measurable: str = ""
    background: str = ""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        unbounded = not all(test.bounded for test in (*self.given, *self.tests))
        refuse_broken_rules(
            (
                sum(bool(part) for part in (self.tests, self.not_measurable, self.background)) != 1,
                "one of tests, not_measurable and background says how the claim is judged",
            ),
            (
                bool(self.tests) and not (self.rule and self.sweeps and self.variant),
                "rule, sweeps and variant: tests need all three",
            ),
            (
                unbounded or any(test.bounded for test in self.shown_only),
                "tests: each needs above, below, within or like; what is only shown has none",
            ),
        )
        return self

    def named(self) -> list[str]:
        """Return the names of all variants that a run must have measured for this rule, each once."""
        tests = (*self.given, *self.tests, *self.shown_only)
        bases = [base.variant for test in tests for base in (test.minus, test.ratio_to) if base is not None]
        names = [self.variant, *(test.variant for test in tests), *bases]
        return list(dict.fromkeys(name for name in names if name))

    @property
    def command(self) -> str:
        """The `just bench` command that makes a run for this rule, by which the rule's claim can be judged."""
        sustained = " --sustained" if self.sustained else ""
        loads = f"--sweep {self.sweeps[0]}{sustained} --blocks {SUGGESTED_BLOCKS}"
        return f"just bench {' '.join(self.named())} {loads}{rerun.place(self.target)}"


class ClaimCheck(StrictModel):
    """A table in a file of lab/studies/claims/checks: a fact known beforehand, and the rules that check it on runs."""

    text: str
    rules: list[ClaimRule] = Field(min_length=1)


def read_claims() -> list[Claim]:
    """Return the claims of all studies, one for each row of data/published/claims.csv, in the order of the file.

    Raises:
        UsageError: The file does not match its schema.

    """
    columns = ("claim_id", "source", "kind", "claim", "published_value", "unit", "note")
    return [Claim(*(row[name] for name in columns)) for row in published.read_texts("claims")]


def rules() -> dict[str, list[ClaimRule]]:
    """Return the rules by which runs judge claims, from all TOML files in lab/studies/claims: id of a claim → its rules.

    Raises:
        UsageError: A file is faulty; the error has the file, the claim and a remedy.

    """
    by_id, by_claim = {claim.id: claim for claim in read_claims()}, dict[str, list[ClaimRule]]()
    for place, _, name, table in tables(FOLDER, "lab/studies/claims"):
        refuse_unknown(name, by_id, place, "no such claim")
        refuse_if(name in by_claim, place, "another file judges it, too", "keep one")
        entries = table if isinstance(table, list) else [table]
        by_claim[name] = [
            _resolve_rule(place, validate_table(ClaimRule, entry, place, SCHEMA, ClaimRule, ClaimTest, Other), by_id)
            for entry in entries
        ]
    return by_claim


def checks() -> list[tuple[Claim, list[ClaimRule]]]:
    """Return the checks of lab/studies/claims/checks, each in the form of a claim with its rules.

    A check is a fact that is known before any run. In the form of a claim it has the kind `check` and no published value.

    Raises:
        UsageError: A file is faulty; the error has the file, the check and a remedy.

    """
    by_id = {claim.id: claim for claim in read_claims()}
    entries = [
        (place, study, name, validate_table(ClaimCheck, table, place, SCHEMA, ClaimRule, ClaimTest, Other))
        for place, study, name, table in tables(CHECKS, "lab/studies/claims/checks")
    ]
    return [
        (
            Claim(name, study, "check", check.text, "", "", ""),
            [_resolve_rule(place, rule, by_id) for rule in check.rules],
        )
        for place, study, name, check in entries
    ]


def tables(folder: Path, label: str) -> Iterator[tuple[str, str, str, Any]]:
    """Yield every top-level table of every TOML file in a folder.

    Args:
        folder: The folder.
        label: The folder's name in messages.

    Yields:
        (place for messages, file's name without its ending, table's name, table).

    Raises:
        UsageError: A file is no TOML.

    """
    for path in sorted(folder.glob("*.toml")):
        place = f"{label}/{path.name}"
        for name, table in read_toml(path, place, "lab/studies/claims/nds.toml").items():
            yield f"{place}: {name}", path.stem, name, table


def _resolve_rule(place: str, rule: ClaimRule, by_id: Mapping[str, Claim]) -> ClaimRule:
    """Check the names in a rule, and return the rule with each `like` replaced by the bound that it means.

    `like` names two claims. Its bound is a range around the ratio of the numbers that the two claims published (within a factor of
    NEAR_FACTOR).

    Args:
        place: The rule's place, for messages.
        rule: The rule.
        by_id: Claim id → claim.

    Raises:
        UsageError: The rule names an unknown sweep, target, variant or claim, or a claim that published no number.

    """
    for names, valid in ((rule.sweeps, sweeps.sweep_names()), ([rule.target], BRING_UP_S)):
        for name in names:
            refuse_unknown(name, valid, place, f"there is no '{name}'")
    for name in rule.named():  # only present names: the runs are read by them
        now = find_present_name(name)
        if name not in aliases().gone and (name != now or not is_variant(now)):
            raise UsageError(place, f"there is no '{name}'", did_you_mean(now, variants.variant_names()))

    def bounded(test: ClaimTest) -> ClaimTest:
        if test.like is None:
            return test
        numbers: list[float] = []
        for name in test.like:
            refuse_unknown(name, by_id, f"{place}: like", f"there is no claim '{name}'")
            numbers.append(by_id[name].number or 0.0)
            fault = f"{name} published no number: {by_id[name].published!r}"
            refuse_if(numbers[-1] <= 0, f"{place}: like", fault, "name two cells of a table")
        ratio = numbers[0] / numbers[1]
        return test.model_copy(update={"within": (ratio / NEAR_FACTOR, ratio * NEAR_FACTOR)})

    parts = {"given": rule.given, "tests": rule.tests}
    return rule.model_copy(update={name: [bounded(test) for test in part] for name, part in parts.items()})


def lies_within_bound(
    low: float,
    high: float,
    within: tuple[float, float] | None,
    above: float | None,
    below: float | None,
    shift: Callable[[float], tuple[float, float]] = lambda bound: (bound, bound),
) -> bool | None:
    """Return whether a range of values meets a bound: True if all values do, False if no value does, None otherwise.

    Exactly one of `within`, `above` and `below` is the bound; the other two are None.

    Args:
        low: The lower end of the range.
        high: The upper end of the range.
        within: The range must lie within these two values.
        above: The range must lie above this value.
        below: The range must lie below this value.
        shift: A function that makes two bounds from `above` or `below`: (bound moved down, bound moved up), for example by the
            noise. To meet the bound, the range must be beyond both. By default the bound is not moved.

    """
    if within is not None:
        inside, outside = within[0] <= low and high <= within[1], high < within[0] or low > within[1]
    elif above is not None:
        lower, upper = shift(above)
        inside, outside = low > upper, high <= lower
    else:
        lower, upper = shift(below or 0.0)
        inside, outside = high < lower, low >= upper
    return True if inside else False if outside else None


def format_short(value: float) -> str:
    """Return a number as text with three significant digits: `0.0123`, `−4.57`, `1,234`; from 100 on without a fraction.

    The minus sign is the typographic one, not a hyphen.
    """
    size = abs(value)
    text = f"{value:,.0f}" if size >= 99.95 or size == 0 else f"{value:.3g}"
    return text.replace("-", "−")
