"""The second judgement: rules as data, numbers from data/published, and answers that are computed from them."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.studies import claims
from lab.studies.claims import publications
from lab.studies.claims.publications import Number, OwnJudgement, OwnRule, OwnTest, judge_by_own_data, own, take_number

CLAIM = claims.Claim("DO-24", "digitalocean", "figure", "c", "200-250", "ms", "")


@pytest.fixture(scope="module")
def every() -> dict[str, OwnJudgement]:
    return judge_by_own_data()


def test_every_claim_is_held_against_its_own_data(every: dict[str, OwnJudgement]) -> None:
    assert every.keys() == {claim.id for claim in claims.read_claims()}
    for name, found in every.items():
        assert found.answer in publications.OWN_ANSWERS and found.sentence, name
        assert bool(found.rule) == (found.answer != "no data"), name


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("DO-10", "inconclusive", "differ in both directions"),
        ("DO-16", "inconclusive", "one request in 54,613"),
        ("DO-19", "not supported", "0 of 10 from 200 to 300 ms"),
        ("DO-24", "not supported", "31,495 [31,472, 31,518] ms (connections 800)"),
        ("ND-02", "inconclusive", "average 0.0685 s (concurrency 500) to 0.134 s (concurrency 800), 2 of 2 below 1 s"),
        ("ND-05", "not supported", "slowest 3.02 s, to be below 1.2 s"),
        ("ND-06", "supported", "12 %, as claimed"),
        ("ND-07", "not supported", "1.42 × (process proc2)"),
        ("ND-11", "no data", "no times of events are printed"),
        ("OK-07", "not supported", "transactions 21,583/s, as claimed; against edge 1.29 ×, to be below 1 ×"),
        ("OK-17", "inconclusive", "the table varies none of them"),
        ("QN-12", "supported", "exponent 0.974"),
        ("NG-07", "not supported", "1.13 × (routing POST method) to 1.16 × (routing path), 0 of 5 from 1 to 1.1"),
    ],
)
def test_what_the_publications_own_data_say(every: dict[str, OwnJudgement], name: str, answer: str, said: str) -> None:
    assert every[name].answer == answer, every[name].sentence
    assert said in every[name].sentence


@pytest.mark.parametrize(
    ("bound", "answer"),
    [
        ({"below": 149.0}, "supported"),
        ({"below": 147.0}, "inconclusive"),
        ({"below": 81.0}, "inconclusive"),
        ({"below": 80.0}, "not supported"),
        ({"above": 79.0}, "supported"),
        ({"above": 120.0}, "inconclusive"),
        ({"above": 148.0}, "not supported"),
    ],
)
def test_a_bound_within_the_uncertainty_of_reading_settles_nothing(bound: dict[str, float], answer: str) -> None:
    """p99.9 of suite 3 at 700 connections: 114 ± 34 ms."""
    where = {"suite": "somaxconn", "connections": 700, "percentile": 99.9}
    told = {"table": "digitalocean_latency_spectrum", "where": where, "column": "latency_ms", **bound}
    found = own(CLAIM, OwnRule(rule="r", tests=[OwnTest.model_validate(told)]))
    assert found.answer == answer
    assert found.sentence.startswith("latency 114 [80, 148] ms, to be ")


CURVE = [
    {"percentile": 0.0, "ms": 0.0, "uncertainty_ms": 0.0, "is_curve_end": False},
    {"percentile": 50.0, "ms": 10.0, "uncertainty_ms": 2.0, "is_curve_end": False},
    {"percentile": 90.0, "ms": 20.0, "uncertainty_ms": 2.0, "is_curve_end": True},
]


def test_a_number_is_taken_of_several_rows_or_of_a_percentile_curve() -> None:
    """∫ of the polyline, straight in log10(1/(1-p)): halfway from 0 % to 90 % is 68.4 %. Of several rows uncertainties add up."""
    found = take_number(CURVE, "ms", "mean_over_percentiles")
    assert found.value == pytest.approx(0.5 * 5 + 0.4 * 15 + 0.1 * 20)
    assert found.low == pytest.approx(0.4 * 8 + 0.1 * 18)
    assert found.high == pytest.approx(0.5 * 12 + 0.4 * 22 + 0.1 * 22)
    assert take_number(CURVE[:2], "ms", "mean_over_percentiles").high == inf, "the curve goes on, nobody knows where to"
    found = take_number([CURVE[0], CURVE[2]], "ms", "at_percentile", 100 * (1 - 10**-0.5))
    assert found.value == pytest.approx(10)
    assert (found.low, found.high) == (0, 22)
    assert take_number(CURVE, "ms", "at_percentile", 50) == Number(10, 8, 12)
    with pytest.raises(ValueError, match="no 99 %"):
        take_number(CURVE, "ms", "at_percentile", 99)
    told = {take: take_number(CURVE, "ms", take) for take in ("count", "sum", "min", "max")}
    expected = {"count": (3, 3, 3), "sum": (30, 26, 34), "min": (0, 0, 0), "max": (20, 18, 22)}
    assert told == {take: Number(*numbers) for take, numbers in expected.items()}
    assert take_number(CURVE, "ms", "mean").value == take_number(CURVE, "ms", "median").value == 10
    sizes = [{"n": size, "rate": 3.0 * size**0.5} for size in (1, 4, 16)]
    assert take_number(sizes, "rate", "exponent", over="n").value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[DO-99]\nno_data='x'", "no such claim"),
        ("[ND-01]\nno_data='x'", "a claim of nds\n  move it to nds.toml"),
        ("[DO-24]\nno_dat='x'", "unknown key: did you mean 'no_data'"),
        ("[DO-24]\nrule='r'", "one of tests and no_data"),
        ("[DO-24]\ntests=[{table='sweeps',column='duration_s',above=1}]", "tests need it in words"),
        ("[DO-24]\nno_data='x'\nunsettled={because='y'}", "nothing to settle"),
        ("[DO-24]\nrule='r'\ntests=[{table='sweeps',column='duration_s'}]", "one of above, below, within and claimed"),
        ("[DO-24]\nrule='r'\ntests=[{table='sweeps',column='x',take='exponent',above=1}]", "exponent needs it"),
        ("[DO-24]\nrule='r'\ntests=[{table='sweep',column='x',above=1}]", "did you mean 'sweeps'"),
        ("[DO-24]\nrule='r'\ntests=[{table='sweeps',column='duration',above=1}]", "did you mean 'duration_s'"),
        ("[DO-24]\nrule='r'\ntests=[{table='qinng_setups',column='requests_per_s',above=1}]", "one value of 4 rows"),
        ("[DO-24]\nrule='r'\ntests=[{table='sweeps',where={tol='x'},column='duration_s',above=1}]", "column 'tol'"),
        ("[DO-24]\nrule='r'\ntests=[{table='sweeps',where={tool='x'},column='duration_s',above=1}]", "has no row with"),
        ("[DO-24", "not TOML"),
    ],
)
def test_a_faulty_rule_is_told(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digitalocean.toml").write_text(text)
    monkeypatch.setattr(publications, "FOLDER", tmp_path)
    with pytest.raises(UsageError) as caught:
        judge_by_own_data()
    assert said in str(caught.value)
