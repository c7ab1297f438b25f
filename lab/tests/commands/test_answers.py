"""What verbs answer through the whole command line: of a committed run, of what there is, of what they would measure; and what a run records of it."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from lab.__main__ import main
from lab.commands import command_for_record
from lab.commands.verbs import OLD_SPELLINGS, VERBS, parser
from lab.model.facts import ROOT
from lab.records.store import RunStore
from lab.targets.local.target import LocalTarget
from lab.tests.support.boots import on_boot

RUN = "data/reference/quick-keepalive"


def answered(words: str, status: int, said: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """No colours in a pipe, and nothing on stderr."""
    assert main(shlex.split(words)) == status
    out, err = capsys.readouterr()
    assert [line for line in said if not re.search(line, out, re.MULTILINE)] == [], out
    assert "\x1b[" not in out and err == ""
    return out


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("words", "columns", "said"),
    [
        (
            "list",
            250,
            [
                r"^backlog +backlog-128 +somaxconn-32768 +digitalocean +accept queue raised",
                "^direct .*reference of every run",
            ],
        ),
        pytest.param("list", 60, ["^.*upstream-keepalive-requests-1000.*$"], marks=pytest.mark.slow),
        (
            "show keepalive",
            160,
            [
                "^keepalive: ",
                "^  baseline +ingress-nginx$",
                "^knob keep-alive-requests-10000: ",
                "^  hypothesis +.*CPU seconds per request",
                "^  sweep +quick$",
                "^  primary metric +cpu_per_request$",
                "^  proxy: nginx -T: keepalive_requests in http/upstream = 1000$",
                r"^\+  keep-alive-requests: '10000'$",
                r"^\+  upstream-keepalive-requests: '1000'$",
            ],
        ),
        ("show backlog", 40, [r"^- +- net\.core\.somaxconn=128$", r"^\+ +- net\.core\.somaxconn=32768$"]),
        ("show direct", 160, ["^  Deployment backend$", r"\A(?!(?s:.*)\n  [A-Z][A-Za-z]+ proxy)"]),
        (
            "show backlog-128+keep-alive-requests-10000",
            160,
            ["^  inherits +somaxconn-128$", "^knob keep-alive-requests-10000: "],
        ),
        (
            f"compare {RUN}",
            100,
            [
                "^ceiling  64 connections, closed loop",
                "^  keepalive against ingress-nginx$",
                r"^    CPU/req +µs +[0-9.]+ \[[0-9., ]+\] +[0-9.]+ \[[0-9., ]+\] +~ \[.*\] % +[0-9.]+ +6$",
                "generator-limited; only CPU per request carries the effect",
                "^keepalive: no difference resolved in .*: no change needed unless [0-9.]+ % in CPU per request",
            ],
        ),
        (f"gate {RUN} --max-regression 50% --strict", 100, ["0 regressions, 0 inconclusive"]),
        pytest.param(
            "ledger nds --rules",
            100,
            [
                "^12 claims: ",
                "rule: reproduced if",
                "rule of its own data: supported if",
                "^how a claim of kind .figure. is judged: here, ",
                r"\A(?!(?s:.*)OK-30)",
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "ledger --boots",
            120,
            ["^finding: ", "^claim: .*bound: (above|below|within) [0-9]"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "ledger",
            120,
            [
                "^[0-9]{3} claims: ",
                "^ND-11 ",
                "^by the publications' own data: [0-9]+ supported, ",
                "its own data: not supported: ",
                r"\A(?!(?s:.*)not judged yet)",
            ],
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_is_answered_has_these_lines_whole(
    words: str, columns: int, said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line of a diff or a name is wrapped, however narrow the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    answered(words, 0, said, capsys)


@pytest.mark.slow
def test_list_names_every_variant_knob_sweep_and_study_there_is_a_file_for_and_so_it_does_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    files = [
        *ROOT.glob("manifests/overlays/*/"),
        *ROOT.glob("manifests/components/*/"),
        *ROOT.glob("lab/sweeps/*.toml"),
        *ROOT.glob("lab/studies/*.toml"),
    ]
    names = [*(path.name.removesuffix(".toml") for path in files), "okd-quick", "reload-endpoints-quick"]
    answered("list", 0, [rf"^ *{re.escape(name)}( |$)" for name in names], capsys)
    told = json.loads(answered("list --json", 0, [], capsys))
    assert "keepalive" in {item["name"] for item in told["variants"]}
    assert "somaxconn-32768" in {item["name"] for item in told["knobs"]}


def test_a_regression_is_exit_1_of_a_run_or_of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = on_boot("quick-keepalive", tmp_path / "slower", "b", cost=1.5)
    said = r"REGRESSION: keepalive against ingress-nginx at ceiling: CPU per request: \+5[0-9]\."
    answered(f"gate {slower} --max-regression 10% --again {RUN}", 1, [said], capsys)
    two = f"gate {RUN}:keepalive {slower}:keepalive --max-regression 10% --metric cpu_per_request"
    answered(two, 1, ["two runs, unpaired"], capsys)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs would go. In this process instead of the local target's namespaces; nothing can be measured."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(LocalTarget, "enter", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(LocalTarget, "check", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(RunStore, "create", None)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bench nginx --against ingress-nginx", [" nginx, ingress-nginx, ingress-nginx-again; in 3 blocks: direct\n"]),
        ("bench ingress-nginx --against direct", [" ingress-nginx, direct, direct-again\n"]),
        (
            "bench keepalive --against use-gzip+somaxconn-128",
            [" keepalive, use-gzip+somaxconn-128, use-gzip+somaxconn-128-again; in 3 blocks: direct\n"],
        ),
        ("aa --k6-out csv", ["ingress-nginx, ingress-nginx-again, ingress-nginx-null-1; in "]),
        ("aa --sweep at-knee --knee 2000", ["2,000 req/s, as named", "1,000 req/s", "1,600 req/s"]),
        (
            "aa keepalive --nulls 3",
            ["keepalive, keepalive-again, keepalive-null-1, keepalive-null-2, keepalive-null-3; in ", "in 10 blocks"],
        ),
        ("study okd --quick", ["12 arms at 2 points, about ", " min", "6 blocks", "direct"]),
        (
            "knee ingress-nginx --generator k6 --duration 3 --p99 20ms --start 200 --precision 10%",
            [
                "k6, 100 connections, 200 req/s, 3 s, 1kB.bin",
                "p99 at most 20.0 ms",
                "below 80 % of its CPU",
                "x2 from 200 req/s",
                "within 10 %",
            ],
        ),
        (
            "knee use-gzip+gzip-level-9 --generator k6 --page 64kB.txt --accept-encoding gzip --close",
            ["64kB.txt", "new connection per request", "accepts gzip"],
        ),
    ],
)
def test_options_are_what_is_planned(
    words: str, told: list[str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "--plan"]) == 0
    out, err = capsys.readouterr()
    assert [part for part in told if part not in err] == [], err
    assert out == "" and list(runs.rglob("*")) == []


def test_a_gate_of_a_ref_that_changed_no_rendered_manifest_passes_at_once(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "manifests"], cwd=ROOT, check=False).returncode:
        pytest.skip("the manifests of this checkout are changed, or it is none of git's")
    assert main(["gate", "--against", "HEAD", "keepalive", "--junit", str(tmp_path / "gate.xml")]) == 0
    told = "0 regressions: no rendered manifest of keepalive differs from HEAD's: nothing to measure, nothing to do\n"
    assert capsys.readouterr().out == told
    assert (tmp_path / "gate.xml").stat().st_size and list(runs.rglob("*")) == []


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (
            "bench --json keepalive okd --blocks 3 --target=remote --context mine",
            "lab bench --target=remote --blocks=3 --json -- keepalive okd",
        ),
        ("bench --bloc 3 keepalive", "lab bench --blocks=3 -- keepalive"),
        ("bench --configmap=-odd.yaml --seed 0", "lab bench --config=-odd.yaml --seed=0"),
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
    assert " ".join(command_for_record(options, names.get(argv[0], ""))) == told


@pytest.mark.parametrize(("old", "new"), OLD_SPELLINGS.items())
def test_an_old_spelling_is_answered_with_the_new_one(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line and exit 2; what the line names is a verb that there is."""
    assert main([old, "RUN", "--arm", "a"]) == 2
    assert capsys.readouterr() == ("", f"just {old}: is `just {new} RUN --arm a` now\n")
    assert new == "lint --fix" or new.split()[0] in VERBS


def test_an_old_option_is_accepted_with_a_line_that_gives_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "keepalive", "--worth=0"]) == 2
    assert capsys.readouterr().err.startswith("--worth: is --margin now\n--margin: 0 is no share")


def test_the_tables_are_those_of_the_justfile() -> None:
    """Every verb has a recipe, and every old spelling a hidden one."""
    text = (ROOT / "justfile").read_text()
    assert set(re.findall(r'^(\w+) \*ARGS: \(_old "\1" ARGS\)$', text, re.MULTILINE)) == set(OLD_SPELLINGS)
    assert set(re.findall(r"^    @python -m lab (\w+) ", text, re.MULTILINE)) == set(VERBS)


def test_notebooks_are_opened_with_options_of_jupyters_own() -> None:
    typed = ["--no-browser", "--port", "1", "--help"]
    assert parser().parse_args(["maintain", "notebook", *typed]).arguments == typed
