"""The check of a file says what `bench --config` would measure and how long that takes, and has a place for every key."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.commands.check import CHECK
from lab.experiments.bench import BenchRequest, prepare
from lab.experiments.configmap.checking import estimate_run_s
from lab.experiments.configmap.reading import read_settings
from lab.experiments.configmap.split import sort_keys
from lab.model.names import BRING_UP_S
from lab.model.pairs import SIDES
from lab.tests.experiments.configmap.test_forms import FIELD, INTO
from lab.tests.support.fakes import FakeTarget

NO_CONFIGURATION = {"17-empty-data.yaml", "23-duplicate-keys.yaml", "24-tabs.yaml", "33-f5-configmap.yaml"}
"""Files that are refused; every other one has a page."""

Capture = pytest.CaptureFixture[str]


def answer_for(path: Path, capsys: Capture) -> tuple[str, dict[str, Any]]:
    """Return the page about a file, and the same as JSON."""
    texts: list[str] = []
    for as_json in (False, True):
        assert CHECK.run
        assert CHECK.run(argparse.Namespace(file=str(path), json=as_json), Console(stderr=True)) is None
        texts.append(capsys.readouterr().out)
    too_long = [line for line in texts[0].splitlines() if len(line) > 110 and "just bench" not in line]
    assert not too_long, too_long
    return texts[0], json.loads(texts[1])


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("mine.yaml")


def test_every_key_has_its_place_and_is_counted_once(mine: Path, capsys: Capture) -> None:
    mine.write_text(
        "worker-connections: '9'\nproxy-temp-file-write-size: 64k\nworker-buffer-size: 8k\nuse-gzip: 'False'\nhsts: 'false'\n"
        "proxy-read-timeout: 30s\nkeep-alive: '0x3C'\nkeep-alive-requests: '5000'\nproxy-buffering: 'true'\nenable-modsecurity: 'true'\n"
    )
    text, report = answer_for(mine, capsys)
    assert " ".join(text.partition("\n\n")[0].split()) == (
        "mine.yaml: 10 settings: 1 breaks the whole file, 4 do nothing, 1 is the default, 1 cannot be measured here, "
        "1 needs the controller, 2 can be measured."
    )
    for line in (
        "BREAKS THE WHOLE FILE (nginx refuses it; the controller then keeps the configuration that it has)",
        "  proxy-buffering  ",
        "DO NOTHING (ingress-nginx 1.15.1 does not know them)",
        "  worker-connections          you mean max-worker-connections",
        "  proxy-temp-file-write-size  no key does what nginx's proxy_temp_file_write_size does (location-snippet)",
        "  worker-buffer-size          nearest: proxy-buffer-size, ",
        "DO NOTHING (the value is not valid)",
        "  proxy-read-timeout  '30s' is not a whole number: the controller logs that and keeps '60'",
        "READ AS ANOTHER VALUE",
        "  keep-alive  '0x3C' is read as 60",
        "DEFAULT ANYWAY    use-gzip: False",
        "NO LOAD SHOWS IT  hsts",
        "CONTROLLER ONLY   enable-modsecurity (add --target apiserver)",
        "  just bench --config mine.yaml --whole",
        "  just bench --config mine.yaml --only keep-alive",
    ):
        assert f"\n{line}" in text, text
    assert "\nTEST   all together: " in text and " (--whole)   each by itself: " in text
    kinds = {item["key"]: item["kind"] for item in report["keys"]}
    assert kinds["use-gzip"] == "default" and kinds["keep-alive"] == "read" and report["settings"] == 10
    assert report["duration_s"]["whole"] < report["duration_s"]["both"]


def test_a_file_of_which_nothing_can_be_measured_has_a_page_too(mine: Path, capsys: Capture) -> None:
    mine.write_text("keep-alive-request: '5000'\nuse-gzip: 'false'\n")
    text, _ = answer_for(mine, capsys)
    assert "2 settings: 1 does nothing, 1 is the default." in text
    assert "TEST   nothing: no key of this file changes what a load of the lab could show" in text


def test_a_name_of_two_words_is_one_word_in_the_commands(mine: Path, capsys: Capture) -> None:
    mine.with_name("my file.yaml").write_text("keep-alive: '9'\n")
    text, _ = answer_for(mine.with_name("my file.yaml"), capsys)
    assert "\n  just bench --config 'my file.yaml' --whole\n" in text


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, id=path.name, marks=[] if path.name in ("08-multidoc.yaml", *NO_CONFIGURATION) else pytest.mark.slow
        )
        for path in sorted(FIELD.iterdir())
    ],
)
def test_files_from_the_field_have_a_page_with_what_a_bench_would_measure(path: Path, capsys: Capture) -> None:
    if path.name in NO_CONFIGURATION:
        return
    given = read_settings(path.name, path.read_bytes(), INTO)
    text, report = answer_for(path, capsys)
    assert text.startswith(f"{path}: {len(given.data)} setting".split()[0])
    singles, testable = sort_keys(path.name, given).singles, report["can_be_measured"]
    assert set(testable) == {key for item in singles for key in item.values}
    elsewhere = [item["key"] for item in report["keys"] if item["kind"] != "read"]
    assert sorted([*elsewhere, *report["needs_controller"], *testable]) == sorted(given.data), report
    if singles:
        shortest, takes = min(item["duration_s"] for item in report["measurable"]), report["duration_s"]
        assert 0 < shortest <= min(takes["whole"], takes["each"]) and max(takes.values()) == takes["both"]


@pytest.mark.parametrize(
    ("sweep", "variants"),
    [
        ("quick", ("keep-alive-requests-10000",)),
        ("quick", ("use-gzip", "access-log-off", "ingress-nginx+upstream-keepalive-connections-1")),
        ("tls", ("tls+keep-alive-requests-10000",)),
        ("slow-link", ("use-gzip",)),
    ],
)
def test_the_time_is_that_of_a_plan(sweep: str, variants: tuple[str, ...]) -> None:
    """Of a run on a machine without earlier runs; bring-ups that a load is known to need afresh are not counted."""
    target = FakeTarget("local", sides=SIDES, bring_up_s=BRING_UP_S["local"])
    prepared = prepare(BenchRequest(variants, sweep, seed=1), target, ())
    record = prepared.record
    compared = tuple(
        (arm.baseline or "", variant.primary_metric or "", variant.shared_cost)
        for arm in record.arms
        if arm.role == "variant" and (variant := record.variants[arm.variant])
    )
    fresh_s = prepared.design.fresh.count * target.bring_up_s
    assert estimate_run_s(sweep, compared) == pytest.approx(prepared.design.duration_s - fresh_s, rel=0.02)
