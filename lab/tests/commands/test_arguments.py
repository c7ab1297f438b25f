"""What a run's record has of the command line."""

from __future__ import annotations

import argparse

import pytest

from lab.__main__ import parser
from lab.commands.arguments import recorded


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (
            "bench --json keepalive okd --blocks 3 --target=remote --context mine",
            "lab bench --target=remote --blocks=3 --json -- keepalive okd",
        ),
        ("bench --bloc 3 keepalive", "lab bench --blocks=3 -- keepalive"),
        ("bench --configmap=-odd.yaml --seed 0", "lab bench --configmap=-odd.yaml --seed=0"),
        ("study --quick okd --resolve 5%", "lab study --resolve=5% --quick -- okd"),
        ("aa", "lab aa"),
        ("ablate keepalive --variant", "lab ablate --variant -- keepalive"),
        ("selfbench calibrate --generator k6 --generator wrk", "lab selfbench --generator=k6 --generator=wrk"),
        ("knee --p99 20ms --close -- nginx", "lab knee --p99=20ms --close -- nginx"),
    ],
)
def test_the_record_has_one_form_of_a_command_line(typed: str, told: str) -> None:
    argv = typed.split()
    options = parser().parse_args(argv, argparse.Namespace(argv=argv))
    names = {"bench": "variants", "study": "key", "aa": "subject", "ablate": "subject", "knee": "variants"}
    assert " ".join(recorded(options, names.get(argv[0], ""))) == told
