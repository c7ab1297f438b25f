"""What verbs answer through the whole command line: of a committed run, of what there is, of what they would measure; and what a run records of it."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lab.__main__ import main
from lab.commands import OPTIONS, Verb, command_for_record
from lab.commands.verbs import OLD_SPELLINGS, VERBS, parser
from lab.model.facts import ROOT
from lab.model.metrics import RATIOS
from lab.model.names import OUTPUT_WIDTH
from lab.model.pages import PAGES
from lab.model.sweeps import sweep_names
from lab.records.store import RunStore
from lab.studies.study_files import list_studies
from lab.targets.local.target import LocalTarget
from lab.targets.prerequisites import TARGETS
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
            "list variants --all",
            250,
            [
                r"^backlog +backlog-128 +somaxconn-32768 +digitalocean +accept queue raised",
                "^direct .*reference of every run",
            ],
        ),
        pytest.param("list --all", 60, ["^.*upstream-keepalive-requests-1000.*$"], marks=pytest.mark.slow),
        (
            "list",
            80,
            [
                r"\A\d+ variants, \d+ knobs, \d+ sweeps and \d+ studies\. Ten to start with:$",
                "^  just bench keepalive +longer-lived client connections",
                "^  just list knobs +single settings",
            ],
        ),
        ("list sweeps latency", 80, [r"\A\d+ sweeps$", "^SWEEP$", r"^  latency  +\S"]),
        ("list studies", 80, [r"\A7 studies$", "^STUDY$", r"^  okd  +\S.*\?$"]),
        ("list knobs", 80, [r"\A\d+ knobs$", r"^… \d+ more lines: just list knobs --all$"]),
        (
            "show keepalive --all",
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
        ("show backlog --all", 40, [r"^- +- net\.core\.somaxconn=128$", r"^\+ +- net\.core\.somaxconn=32768$"]),
        ("show keepalive", 160, ["^keepalive: ", r"^\+  keep-alive-requests: '10000'$"]),
        (
            "show qinng-tuned",
            160,
            [
                "^qinng-tuned: ",
                "^knob keep-alive-200: ",
                r"^\+  keep-alive: '200'$",
                r"\A(?!(?s:.*)hypothesis)",
            ],
        ),
        ("show okd-edge", 160, [r"^… \d+ more lines: just show okd-edge --all$"]),
        ("show direct --all", 160, ["^  Deployment backend$", r"\A(?!(?s:.*)\n  [A-Z][A-Za-z]+ proxy)"]),
        (
            "show backlog-128+keep-alive-requests-10000 --all",
            160,
            ["^  inherits +somaxconn-128$", "^knob keep-alive-requests-10000: "],
        ),
        (
            f"compare {RUN}",
            100,
            [
                "^ceiling  64 connections, closed loop",
                "^  keepalive against ingress-nginx$",
                r"^    CPU/req +µs +~ \[.*\] % +[0-9.]+ +6$",
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
    answered("list --all", 0, [rf"^ *{re.escape(name)}( |$)" for name in names], capsys)
    told = json.loads(answered("list --json", 0, [], capsys))
    assert "keepalive" in {item["name"] for item in told["variants"]}
    assert "somaxconn-32768" in {item["name"] for item in told["knobs"]}


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "list sweeps",
        "list knobs keep-alive",
        "show ingress-nginx",
        pytest.param("list variants", marks=pytest.mark.slow),
        pytest.param("list gzip", marks=pytest.mark.slow),
        pytest.param("show qinng-tuned", marks=pytest.mark.slow),
        pytest.param("show traefik-ingress-nginx", marks=pytest.mark.slow),
        pytest.param("show okd-reencrypt-hostnetwork", marks=pytest.mark.slow),
        pytest.param("show envoy-gateway", marks=pytest.mark.slow),
    ],
)
def test_a_page_has_at_most_60_lines_of_110_columns_however_wide_the_terminal(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    lines = answered(words, 0, [], capsys).splitlines()
    assert len(lines) <= 60
    assert [line for line in lines if len(line) > OUTPUT_WIDTH] == []


def verbs(words: Mapping[str, Verb], before: str = "") -> Iterator[tuple[str, Verb]]:
    """Every verb and subcommand, with the words that call it."""
    for name, verb in words.items():
        yield f"{before}{name}", verb
        yield from verbs(verb.words, f"{before}{name} ")


ALL_VERBS = list(verbs(VERBS))


@pytest.mark.parametrize(("words", "verb"), ALL_VERBS, ids=[words for words, _ in ALL_VERBS])
def test_help_ends_in_one_to_three_examples_that_the_verb_itself_reads(
    words: str, verb: Verb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert 1 <= len(verb.examples) <= 3
    for example in verb.examples:
        assert example.startswith(f"just {words}")
        parser().parse_args(shlex.split(example)[1:])
    if "add_help" in verb.more:  # all arguments are passed on
        return
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*words.split(), "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text.startswith(f"usage: just {words}")
    assert text.endswith("\n  ".join(["\nfor example:", *verb.examples]) + "\n")
    assert [line for line in text.splitlines() if len(line) > OUTPUT_WIDTH] == []


@pytest.mark.parametrize(("words", "verb"), ALL_VERBS, ids=[words for words, _ in ALL_VERBS])
def test_every_options_help_is_a_phrase_that_stands_alone(words: str, verb: Verb) -> None:
    """It begins with no preposition and refers to no option above it; every positional argument has one, too."""
    texts = {name: str(argument.get("help", "")) for name, argument in verb.takes.items()}
    texts |= {name: str(OPTIONS[name]["help"]) for name in verb.shared}
    leaning = re.compile(r"(of|by|as|instead|there|it|them|whose|which|how often|default)\b", re.IGNORECASE)
    assert {name: text for name, text in texts.items() if len(text.split()) < 4 or leaning.match(text)} == {}


def test_help_names_what_may_be_given() -> None:
    """Every target, study, page and metric by name; of sweeps the common ones, and where the rest is."""
    helps = {words: {**verb.takes, **{name: OPTIONS[name] for name in verb.shared}} for words, verb in ALL_VERBS}
    targets = re.findall(r"\w+", str(helps["bench"]["--target"]["help"]))
    assert {*TARGETS} <= {*targets}
    for words, name in (("study", "key"), ("ledger", "study")):
        text = str(helps[words][name]["help"])
        assert [study for study in list_studies() if study not in text] == []
    assert [page for page in PAGES if page not in str(helps["knee"]["--page"]["help"])] == []
    assert [metric for metric in RATIOS if metric not in str(helps["gate"]["--metric"]["help"])] == []
    sweeps = [str(taken["--sweep"]["help"]) for taken in helps.values() if "--sweep" in taken]
    assert len(sweeps) >= 5 and all("`just list sweeps`" in text for text in sweeps)
    named = re.findall(r"[a-z-]+", sweeps[0].partition(": ")[2].partition(", or another")[0])
    assert len(named) >= 5 and {*named} <= {*sweep_names()}


def test_contributors_verbs_are_a_group_of_their_own() -> None:
    by_group: dict[str, set[str]] = {}
    for group, name in re.findall(
        r"^\[group\('(\w+)'\)\]\n(?:\[.*\]\n)*(\w+)", (ROOT / "justfile").read_text(), re.MULTILINE
    ):
        by_group.setdefault(group, set()).add(name)
    assert by_group["contribute"] == {"test", "lint", "sabotage", "selfbench", "maintain"}
    assert by_group["research"] == {"study", "ledger"}


def test_a_regression_is_exit_1_of_a_run_or_of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = on_boot("quick-keepalive", tmp_path / "slower", "b", cost=1.5)
    said = r"REGRESSION: keepalive at ceiling: CPU per request: \+5[0-9]\."
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
        (
            "bench nginx --against ingress-nginx",
            [
                " nginx with ingress-nginx; the baseline with itself (noise check); the backend without a proxy, in 3 blocks runs "
            ],
        ),
        (
            "bench ingress-nginx --against direct",
            [" ingress-nginx with direct; the baseline with itself (noise check) runs "],
        ),
        (
            "bench keepalive --against use-gzip+somaxconn-128",
            [" keepalive with use-gzip+somaxconn-128; the baseline with itself (noise check); the backend "],
        ),
        (
            "aa --k6-out csv",
            [" ingress-nginx-null-1 with ingress-nginx; the baseline with itself (noise check); the backend "],
        ),
        ("aa --sweep at-knee --knee 2000", ["2,000 req/s, as named", "1,000 req/s", "1,600 req/s"]),
        (
            "aa keepalive --nulls 3",
            [" keepalive-null-1, keepalive-null-2, keepalive-null-3 with keepalive; ", "in 10 blocks"],
        ),
        ("study okd --quick", ["12 arms at 2 points, about ", " min", "6 blocks", "the backend without a proxy"]),
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
    assert [part for part in told if part not in " ".join(err.split())] == [], err
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
