"""Claims: the sentences of the studies that can be true or false (data/published/claims.csv), and by which rule each is judged.

Two judgements stand side by side: whether our runs bear a claim out (the files of this folder), and whether the publication's
own data do (`published/`, see `lab.studies.claims.publications`). KINDS says how a claim of each kind is judged by both.

One place per claim: a table of a TOML file of this folder, named by the claim's id. Each says one of three things:

    [ND-11]                                  it is measured:
    rule = "reproduced if …"                 in words, for people
    sweeps = ["kill"]                        runs of data/reference under one of these …
    variant = "grace-period-30+host-port"    … that measured this variant …
    target = "kind"                          … there, "local" unless said: runs of other targets do not count
    [[ND-11.tests]]                          all must hold; one that does not contradicts the claim
    metric = "terminating_s"                 of lab.model.metrics, or a gauge
    points = "kill*"                         at every point of such a name that is no control run
    within = [20, 40]                        or above = …, or below = …, or like = ["OK-03", "OK-01"] for a ratio: within a
                                             factor of NEAR of the ratio of what these two claims published

    [OK-19]                                  it cannot be measured here:
    not_measurable = "one machine: …"

    [OK-21]                                  nothing is to be measured:
    background = "a guide value for planning, …"

lab/studies/claims/checks has rules of the same form for what no study claims and is known beforehand: its tables have a `text` and
`rules`, its files are named by the study whose notebook shows them.

A claim may have several rules, `[[ID]]` each: the first that there is a run for counts, damaged or not; one too short for an interval
only where no rule has a longer one. Where there is none, and a run has put down why it could not show a variant that a rule needs
(`not_measurable` of its record), that is the verdict. `told` are metrics that are shown beside the effect and not judged. A claim
without a table is not judged yet. Refuses unknown keys, sweeps, variants, targets, metrics and claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from lab.analysis import rerun
from lab.base.errors import UsageError, did_you_mean, refuse_unknown
from lab.base.validation import read_toml, refuse, validated
from lab.model import sweeps
from lab.model.metrics import METRICS
from lab.model.names import BRING_UP_S, DEFAULT_TARGET
from lab.model.variants import variants
from lab.model.variants.naming import aliases, is_variant, present_name
from lab.records import published
from lab.studies.study_files import Strict

FOLDER = Path(__file__).parent
CHECKS = FOLDER / "checks"
SCHEMA = "lab/schema/claim.json"
NEAR = 1.25
"""A ratio of levels is a published one again within this factor: other machines, and one run each, leave it no closer."""
RESTS_ON = 10
"""Blocks that a verdict should rest on; an interval needs fewer, and a verdict of fewer says of how many it is."""

Answer = Literal["reproduced", "contradicted", "not resolved", "not measurable here", "background", "not judged yet"]
ANSWERS: dict[Answer, str] = {
    "reproduced": "measured here by the claim's rule, with an interval, and it holds",
    "contradicted": "measured here by the claim's rule, with an interval, and it does not hold",
    "not resolved": "the intervals leave both open, the load could not show it, or there is no whole run of it yet",
    "not measurable here": "one machine, these systems or this target cannot show it",
    "background": "nothing to measure: a guide, a question, or what a program's own source says",
    "not judged yet": "no rule is written yet",
}

KINDS: Mapping[str, str] = {
    "table cell": "here, as its ratio to the table's reference cell (the reference cell itself to another one), of the same"
    f" blocks: the 95 % interval lies within a factor of {NEAR} of the published ratio, or within what its rule names. By its"
    " own data, whether the table prints the number, and, beside the cell that its rule names, if any, whether it is not faster"
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
"""Kind of a claim (claims.csv) → how both judgements are made of it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of claims.csv. `study` is the key of the study whose document it comes from; `note` is this project's own."""

    id: str
    study: str
    kind: str
    text: str
    published: str
    unit: str
    note: str

    @property
    def value(self) -> str:
        """The published value with its unit."""
        return f"{self.published} {self.unit}".strip()

    @property
    def number(self) -> float | None:
        """What it published, where that is one number."""
        try:
            return float(self.published)
        except ValueError:
            return None


class Other(Strict):
    """What a test compares with: another variant at the same point, or the same variant at another, block by block."""

    variant: str | None = None
    points: str | None = Field(default=None, description="a pattern; it must fit one point")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.variant is None and self.points is None:
            raise ValueError("tests: what is compared with needs a variant or points")
        return self


class Test(Strict):
    """One `[[ID.tests]]`: a number of every block, and where its 95 % interval must lie."""

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
        description="two claims: `within` is then a factor of NEAR about the ratio of what they published",
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        bounds = (self.above, self.below, self.within, self.like)
        refuse(
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
        return any(bound is not None for bound in (self.above, self.below, self.within, self.like))

    def met(self, value: float) -> bool:
        """Whether a value by itself, without an interval or a floor, lies where the test wants it."""
        if self.within is not None:
            return self.within[0] <= value <= self.within[1]
        return (self.above is None or value > self.above) and (self.below is None or value < self.below)


class Rule(Strict):
    """How one claim is judged."""

    rule: str = Field(default="", description="the rule in words, as the ledger prints it")
    sweeps: list[str] = Field(default_factory=list[str])
    variant: str = ""
    target: str = Field(default=DEFAULT_TARGET, description="runs of this target alone are held against the rule")
    given: list[Test] = Field(
        default_factory=list[Test], description="what the load must have done; else the claim is not resolved"
    )
    tests: list[Test] = Field(default_factory=list[Test])
    told: list[Test] = Field(default_factory=list[Test], description="shown beside the effect, without a bound")
    sustained: bool = Field(
        default=False,
        description="only loads made by --sustained count, and a comparison must hold in each third of their samples",
    )
    not_measurable: str = ""
    background: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        wanting = not all(test.bounded for test in (*self.given, *self.tests))
        refuse(
            (
                sum(bool(part) for part in (self.tests, self.not_measurable, self.background)) != 1,
                "one of tests, not_measurable and background says how the claim is judged",
            ),
            (
                bool(self.tests) and not (self.rule and self.sweeps and self.variant),
                "rule, sweeps and variant: tests need all three",
            ),
            (
                wanting or any(test.bounded for test in self.told),
                "tests: each needs above, below, within or like; what is only told has none",
            ),
        )
        return self

    def named(self) -> list[str]:
        """Every variant that the rule needs."""
        tests = (*self.given, *self.tests, *self.told)
        others = [other.variant for test in tests for other in (test.minus, test.ratio_to) if other is not None]
        names = [self.variant, *(test.variant for test in tests), *others]
        return list(dict.fromkeys(name for name in names if name))

    @property
    def command(self) -> str:
        """Makes a run that the rule can be held against."""
        sustained = " --sustained" if self.sustained else ""
        loads = f"--sweep {self.sweeps[0]}{sustained} --blocks {RESTS_ON}"
        return f"just bench {' '.join(self.named())} {loads}{rerun.place(self.target)}"


class Check(Strict):
    """One table of lab/studies/claims/checks: something that is known beforehand, and the rules by which runs are held against it."""

    text: str
    rules: list[Rule] = Field(min_length=1)


def claims() -> list[Claim]:
    """Every row of claims.csv in its order. UsageError when it is not what its schema says."""
    named = ("claim_id", "source", "kind", "claim", "published_value", "unit", "note")
    return [Claim(*(row[name] for name in named)) for row in published.texts("claims")]


def rules() -> dict[str, list[Rule]]:
    """Claim id → its rules, from every TOML file of this folder. UsageError with file, claim and remedy."""
    known, found = {claim.id: claim for claim in claims()}, dict[str, list[Rule]]()
    for place, _, name, table in tables(FOLDER, "lab/studies/claims"):
        refuse_unknown(name, known, place, "no such claim")
        if name in found:
            raise UsageError(place, "another file judges it, too", "keep one")
        listed = table if isinstance(table, list) else [table]
        found[name] = [_read(place, validated(Rule, each, place, SCHEMA, Rule, Test, Other), known) for each in listed]
    return found


def checks() -> list[tuple[Claim, list[Rule]]]:
    """Every check of lab/studies/claims/checks as a claim of this project's own, with its rules. UsageError as `rules`."""
    known = {claim.id: claim for claim in claims()}
    read = [
        (place, study, name, validated(Check, table, place, SCHEMA, Rule, Test, Other))
        for place, study, name, table in tables(CHECKS, "lab/studies/claims/checks")
    ]
    return [
        (Claim(name, study, "check", check.text, "", "", ""), [_read(place, rule, known) for rule in check.rules])
        for place, study, name, check in read
    ]


def tables(folder: Path, called: str) -> Iterator[tuple[str, str, str, Any]]:
    """(place, name of the file, name of the table, table) of every file of rules. UsageError where one is not TOML."""
    for path in sorted(folder.glob("*.toml")):
        place = f"{called}/{path.name}"
        for name, table in read_toml(path, place, "lab/studies/claims/nds.toml").items():
            yield f"{place}: {name}", path.stem, name, table


def _read(place: str, rule: Rule, known: Mapping[str, Claim]) -> Rule:
    """With nothing unknown in it, and with the bounds that `like` stands for: about the ratio of what two claims published."""
    for names, every in ((rule.sweeps, sweeps.sweep_names()), ([rule.target], BRING_UP_S)):
        for name in names:
            refuse_unknown(name, every, place, f"there is no '{name}'")
    for name in rule.named():  # by its present name, as its runs are read
        now = present_name(name)
        if name not in aliases().gone and (name != now or not is_variant(now)):
            raise UsageError(place, f"there is no '{name}'", did_you_mean(now, variants.variant_names()))

    def bounded(test: Test) -> Test:
        if test.like is None:
            return test
        numbers: list[float] = []
        for name in test.like:
            refuse_unknown(name, known, f"{place}: like", f"there is no claim '{name}'")
            numbers.append(known[name].number or 0.0)
            if numbers[-1] <= 0:
                fault = f"{name} published no number: {known[name].published!r}"
                raise UsageError(f"{place}: like", fault, "name two cells of a table")
        ratio = numbers[0] / numbers[1]
        return test.model_copy(update={"within": (ratio / NEAR, ratio * NEAR)})

    parts = {"given": rule.given, "tests": rule.tests}
    return rule.model_copy(update={name: [bounded(test) for test in part] for name, part in parts.items()})


def holds(
    low: float,
    high: float,
    within: tuple[float, float] | None,
    above: float | None,
    below: float | None,
    moved: Callable[[float], tuple[float, float]] = lambda bound: (bound, bound),
) -> bool | None:
    """Whether all that lies from `low` to `high` is where it must be, by the one bound that there is; None where only a part of it is.

    `moved`: a bound above or below which it must lie, moved down and up by what is noise.
    """
    if within is not None:
        inside, outside = within[0] <= low and high <= within[1], high < within[0] or low > within[1]
    elif above is not None:
        lower, upper = moved(above)
        inside, outside = low > upper, high <= lower
    else:
        lower, upper = moved(below or 0.0)
        inside, outside = high < lower, low >= upper
    return True if inside else False if outside else None


def short(value: float) -> str:
    """Three significant digits, whole numbers from 100 on, a true minus."""
    size = abs(value)
    text = f"{value:,.0f}" if size >= 99.95 or size == 0 else f"{value:.3g}"
    return text.replace("-", "−")


def fits(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern)
