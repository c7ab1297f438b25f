"""Systems as they are shipped, and systems made to do the same work: two families that never stand in one table."""

from __future__ import annotations

import pytest

from lab.base.errors import UsageError
from lab.experiments.bench.request import Request, load
from lab.model.variants.variants import load_overlay, load_variant, variant_names

EQUAL = [name for name in variant_names() if load_overlay(name).family == "equal work"]


def test_a_variant_is_of_its_roots_family() -> None:
    assert {"ingress-nginx-equal", "envoy-equal", "traefik-equal"} <= set(EQUAL)
    assert load_variant("envoy-equal+envoy-circuit-breakers-65536").family == "equal work"
    assert load_variant("envoy-access-log").family == "as shipped"


@pytest.mark.parametrize(
    ("variants", "against"),
    [
        (("envoy-equal",), ("ingress-nginx",)),
        (("envoy", "traefik-equal"), ()),
        (("envoy-equal", "envoy"), ("ingress-nginx",)),
    ],
)
def test_a_mixed_table_is_refused(variants: tuple[str, ...], against: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="they never stand in one table"):
        load(Request(variants, against=against))


def test_a_family_by_itself_is_measured() -> None:
    loaded = load(Request(("envoy-equal", "traefik-equal")))
    assert set(loaded.variants) == {"envoy-equal", "traefik-equal", "ingress-nginx-equal", "direct"}
