"""How many blocks to plan: known answers, agreement with what runs resolve, and the knobs of known cost that try it for real."""

import re
from itertools import pairwise, product
from math import log1p

import numpy as np
import pytest
import yaml
from scipy import stats as reference

from lab.model.variants.knobs import MANIFESTS, load_knob
from lab.stats import paired as stats
from lab.stats import power

WORK = {name: int(name.rpartition("-")[2]) for name in (f"extra-work-{n}" for n in (2, 4, 8, 40, 80))}


@pytest.mark.parametrize("blocks", [2, 6, 10, 40])
def test_the_planned_sd_is_the_upper_confidence_limit(blocks: int) -> None:
    """Against scipy.stats.chi2; of simulated pilots as many as assured stay below their limit."""
    limit = 0.03 * np.sqrt((blocks - 1) / reference.chi2.ppf(0.2, blocks - 1))
    assert power.compute_planned_sd(0.03, blocks) == pytest.approx(limit)
    pilots = np.random.default_rng(blocks).normal(0, 1, (4000, blocks)).std(axis=1, ddof=1)
    assert np.mean([power.compute_planned_sd(float(sd), blocks) >= 1 for sd in pilots]) == pytest.approx(0.8, abs=0.02)


def test_what_is_resolvable_is_found_with_the_power_of_the_paired_t_test() -> None:
    """Also Cohen 1988, table 2.4.1 (R: power.t.test(delta=.5, power=.9, type="paired")): half a standard deviation takes 44 blocks, a whole one 13."""
    for blocks, level, wanted in product((6, 7, 12, 40, 400), (0.05, 0.05 / 12), (0.5, 0.9, 0.99)):
        effect = power.compute_mde(0.03, blocks, level, wanted)
        assert effect is not None
        away, least = np.log1p(effect) / 0.03 * np.sqrt(blocks), reference.t.ppf(1 - level / 2, blocks - 1)
        assert reference.nct.sf(least, blocks - 1, away) == pytest.approx(wanted, abs=1e-6)
    for share, blocks in ((0.5, 44), (1.0, 13)):
        enough, short = (power.compute_mde(0.01, count) for count in (blocks, blocks - 1))
        assert enough is not None and short is not None and np.log1p(enough) <= share * 0.01 < np.log1p(short)


@pytest.mark.parametrize(
    ("sd", "pilot", "effect"), [(0.03, 6, 0.05), (0.03, 20, 0.02), (0.08, 10, 0.1), (0.05, 8, 0.05)]
)
def test_one_block_fewer_would_not_do(sd: float, pilot: int, effect: float) -> None:
    for asked in ((0.05, 0.9), (0.05 / 12, 0.9), (0.05, 0.99)):
        blocks = power.count_blocks_for_effect(sd, pilot, effect, *asked)
        assert blocks is not None and blocks > stats.MIN_BLOCKS
        enough, short = (power.compute_mde_from_pilot(sd, pilot, count, *asked) for count in (blocks, blocks - 1))
        assert enough is not None and short is not None and enough <= effect < short
        assert enough == power.compute_mde(power.compute_planned_sd(sd, pilot), blocks, *asked)


def test_never_fewer_than_six_blocks_and_none_beyond_a_thousand() -> None:
    assert (
        power.count_blocks_for_effect(0.0, 6, 0.02) == power.count_blocks_for_effect(1e-6, 6, 0.02) == stats.MIN_BLOCKS
    )
    assert power.count_blocks_for_effect(3.0, 6, 0.02) is None
    assert power.compute_mde_from_pilot(0.03, 10, 5) is None
    assert power.compute_mde(0.04, 5) is None and power.compute_mde(0.0, 6) == 0.0


def test_every_further_block_resolves_less() -> None:
    found = [power.compute_mde(0.04, blocks) or 0.0 for blocks in range(6, 1200)]
    assert all(later < earlier for earlier, later in pairwise(found))


def test_as_many_blocks_leave_a_bound_out_as_claim_an_effect_of_its_distance() -> None:
    for sd, pilot, effect in ((0.03, 6, 0.05), (0.08, 10, 0.1), (0.05, 40, 0.02)):
        half = sd * float(reference.t.ppf(0.975, pilot - 1)) / pilot**0.5
        assert power.count_blocks_to_exclude(half, pilot, log1p(effect)) == power.count_blocks_for_effect(
            sd, pilot, effect
        )
        assert power.count_blocks_to_exclude(50 * half, pilot, 50 * log1p(effect)) == power.count_blocks_for_effect(
            sd, pilot, effect
        )
    assert power.count_blocks_to_exclude(0.0, 6, 0.1) == stats.MIN_BLOCKS
    assert power.count_blocks_to_exclude(1.0, 6, 1e-3) is power.count_blocks_to_exclude(1.0, 6, 0.0) is None


@pytest.mark.parametrize("knob", WORK)
def test_a_knob_of_known_work_is_the_same_work_so_many_times(knob: str) -> None:
    """Lines that differ only in their number, none of which matches what a client sends; the last one is read back."""
    component = yaml.safe_load((MANIFESTS / "components" / knob / "kustomization.yaml").read_text())
    ((literal,),) = (each["literals"] for each in component["configMapGenerator"])
    lines = literal.removeprefix("server-snippet=").splitlines()
    assert [int(re.search(r"\(\?#(\d+)\)", line)[1]) for line in lines if line] == list(range(1, WORK[knob] + 1))  # pyright: ignore[reportOptionalSubscript]
    assert len({re.sub(r"\(\?#\d+\)", "", line) for line in lines}) == 1
    (check,) = load_knob(knob).readback
    regex = check.value.removeprefix("$server_protocol ~ ")
    assert f'"{regex}"' in lines[-1]
    assert not any(re.search(regex, protocol) for protocol in ("HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "HTTP/3.0"))
