"""Sweeps: every file in the folder loads, and every kind of bad file is refused with place, fault and remedy."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.model.sweeps import LoadPoint, Sweep, sweep_names
from lab.records.sweep_files import load_sweep

GOOD = """
title = "t"
question = "q"
blocks = 2

[[points]]
name = "a"
generator = "wrk"
connections = 10
duration_s = 5
"""
OUTAGE = 'disturbance = {kind = "outage", at_s = 1, for_s = 1}'
NEW_ROUTE = 'disturbance = {kind = "new-route", at_s = 1, within_s = 1}'


GOLDEN = Path(__file__).with_name("sweeps.tsv")
"""Each sweep of November 2026 with the digest of what it loads to, drawn when each had a file of its own."""


def digest(name: str) -> str:
    """Return a SHA-256 of all that a sweep says and of every point; not of a point's defaults, which may become more."""
    _, sweep = load_sweep(name)
    said = [sweep.title, sweep.question, sweep.blocks, sweep.study, sweep.itself]
    points = [
        (
            point.model_dump(mode="json", exclude_defaults=True, exclude={"disturbance"}),
            point.disturbance and point.disturbance.model_dump(mode="json"),
        )
        for point in sweep.load_points
    ]
    return sha256(json.dumps([said, points], sort_keys=True).encode()).hexdigest()[:16]


def test_every_sweep_that_stored_runs_name_loads_to_what_it_was() -> None:
    golden = dict(line.split("\t") for line in GOLDEN.read_text().splitlines())
    assert len(golden) == 77
    assert {name: digest(name) for name in golden} == golden


def refused(path: Path, text: str, form: str = "") -> str:
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_sweep(str(path.with_stem(path.stem + form)))
    assert str(path) in str(caught.value) and caught.value.exit_status == 2
    return str(caught.value)


FORM = """
[forms.short]
title = "short"
points = ["a"]
without = ["warmup_s"]
each = {duration_s = 3, connections = 700}
point.a = {connections = 800}
"""


def test_a_form_is_a_sweep_by_the_files_name_and_its_own(tmp_path: Path) -> None:
    second = '[[points]]\nname = "b"\ngenerator = "wrk"\nconnections = 1\nduration_s = 1\n'
    (tmp_path / "my-load.toml").write_text(f"{GOOD}warmup_s = 5\n{second}{FORM}")
    name, sweep = load_sweep(str(tmp_path / "my-load-short.toml"))
    assert (name, sweep.title, sweep.question, sweep.blocks) == ("my-load-short", "short", "q", 2)
    (point,) = sweep.load_points
    assert (point.name, point.connections, point.duration_s, point.warmup_s) == ("a", 800, 3.0, 1.0)
    assert [point.warmup_s for point in load_sweep(str(tmp_path / "my-load.toml"))[1].load_points] == [5.0, 1.0]
    with pytest.raises(UsageError, match="there is no file"):
        load_sweep(str(tmp_path / "my-load-shorter.toml"))
    with pytest.raises(UsageError, match="did you mean 'quick'"):
        load_sweep("quik")


def test_a_form_changes_a_disturbance_key_by_key(tmp_path: Path) -> None:
    text = (
        GOOD.replace("connections = 10", "connections = 600").replace("wrk", "k6") + "rate_rps = 100\ntimeout_s = 5\n"
    )
    form = "[forms.late]\neach = {disturbance = {at_s = 2}}\n"
    whole = text.replace("[[points]]", '[disturbance]\nkind = "outage"\nat_s = 1\nfor_s = 1\n[[points]]')
    for given in (f"{text}{OUTAGE}\n{form}", f"{whole}{form}"):
        (tmp_path / "s.toml").write_text(given)
        found = [point.disturbance for point in load_sweep(str(tmp_path / "s-late.toml"))[1].load_points]
        assert [(each.at_s, each.model_dump()["kind"]) for each in found if each] == [(2.0, "outage")] * 2


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('points = ["a"]', 'points = ["c"]', "s.toml: forms.short.points: unknown name 'c'"),
        ("point.a", "point.c", "s.toml: forms.short.point: unknown name 'c'"),
        ('without = ["warmup_s"]', 'without = ["warmup"]', "unknown name 'warmup': did you mean 'warmup_s'?"),
        ('title = "short"', "titel = 1", "forms.short.titel: unknown key: did you mean 'title'?"),
        (
            "duration_s = 3",
            "duration = 3",
            "s.toml: forms.short: points.0.duration: unknown key: did you mean 'duration_s'?",
        ),
        ("duration_s = 3", 'duration_s = "3"', "s.toml: forms.short: points.0.duration_s"),
        ("duration_s = 3", "disturbance = 3", "s.toml: forms.short: points.0.disturbance"),
        ("forms.short", "forms.Short", "s.toml: forms.Short"),
        ("[forms.short]", "[forms]", "s.toml: forms"),
    ],
)
def test_a_form_that_does_not_fit_its_sweep_is_refused(tmp_path: Path, was: str, becomes: str, says: str) -> None:
    assert was in FORM
    form = "Short" if "Short" in becomes else "title" if becomes == "[forms]" else "short"
    assert says in refused(tmp_path / "s.toml", GOOD + FORM.replace(was, becomes), f"-{form}")


def test_a_disturbance_that_takes_over_half_an_hour_has_a_quick_form() -> None:
    """For one variant with its baseline twice; a bring-up of its own for each sample, some 5 s of which are not the load."""
    names = sweep_names()
    assert len(set(names)) == len(names)
    for name in names:
        sweep = load_sweep(name)[1]
        points = sweep.load_points
        took_s = 3 * sweep.blocks * sum(point.duration_s + point.warmup_s + 5 for point in points)
        if any(point.disturbance for point in points) and took_s > 31 * 60:
            assert f"{name.removesuffix('-long')}-quick" in names


def test_a_load_beside_a_disturbance_has_connections_to_spare(tmp_path: Path) -> None:
    """When every request hangs until its timeout, and ends a little after it, the next one must still have a connection."""
    text = GOOD + f"rate_rps = 100\ntimeout_s = 5\n{OUTAGE}\n"
    text = text.replace("wrk", "k6")
    said = refused(tmp_path / "s.toml", text.replace("connections = 10", "connections = 599"))
    assert "points.a.connections: 600 or more" in said
    (tmp_path / "s.toml").write_text(text.replace("connections = 10", "connections = 600"))
    assert [point.name for point in load_sweep(str(tmp_path / "s.toml"))[1].load_points] == ["a", "control"]


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("duration_s = 5", "duration_s = 2", "points.a.duration_s: 3 or more"),
        ("rate_rps = 100\n", "", "points.a.rate_rps: a disturbance needs one rate"),
        ('kind = "outage"', 'kind = ["outage"]', "disturbance.kind: unknown kind ['outage']"),
        ("duration_s = 5", "duration_s = 5\nlink_mbit = 20", "points.a.link_mbit: during a disturbance"),
        (OUTAGE, f"routes = 2\n{NEW_ROUTE}", "points.a.routes: the load asks for one host alone, new.apps.lab.test"),
        (OUTAGE, f'routes = "all"\n{NEW_ROUTE}', "points.a.routes: the load asks for one host alone"),
        ('kind = "outage"', 'kind = "outrage"', "did you mean 'outage'"),
    ],
)
def test_a_disturbance_that_does_not_fit_its_load_is_refused(tmp_path: Path, was: str, becomes: str, says: str) -> None:
    text = GOOD.replace("connections = 10", "connections = 600").replace("wrk", "k6")
    text += f"rate_rps = 100\ntimeout_s = 5\n{OUTAGE}\n"
    assert was in text
    assert says in refused(tmp_path / "s.toml", text.replace(was, becomes))


MIX = '[traffic]\nrequests = ["3 GET h1 p1 100", "1 POST h2 p2 0"]\n\n[[points]]'


def test_a_mix_of_requests_takes_the_place_of_every_points_page(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(GOOD.replace("wrk", "k6").replace("[[points]]", MIX, 1))
    (point,) = load_sweep(str(tmp_path / "s.toml"))[1].load_points
    assert point.traffic is not None
    assert sorted(point.traffic.order) == [0, 0, 0, 1]
    assert (point.routes, point.page) == (2, "traffic/p1?start=104857513")


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("k6", "wrk", "points.a.generator: only k6 makes a mix of requests, not wrk"),
        ("duration_s = 5", 'duration_s = 5\npage = "1kB.bin"', "points.a.page: a mix of requests has its own"),
        ("duration_s = 5", "duration_s = 5\nroutes = 2", "points.a.routes: a mix of requests has its own"),
        ("3 GET h1", "0 GET h1", "traffic.requests.0"),
        ("3 GET h1", "3 BREW h1", "traffic.requests.0"),
        ("3 GET h1", "3 GET h11", "traffic.requests.0"),
        ("requests =", "request =", "traffic.request: unknown key: "),
        ('requests = ["3 GET h1 p1 100", "1 POST h2 p2 0"]', "", "traffic.requests: needs at least one line"),
        (
            "duration_s = 5",
            f"duration_s = 5\nrate_rps = 1\ntimeout_s = 1\n{OUTAGE}",
            "points.a.disturbance: with a mix",
        ),
    ],
)
def test_a_mix_that_does_not_fit_its_points_is_refused(tmp_path: Path, was: str, becomes: str, says: str) -> None:
    text = GOOD.replace("wrk", "k6").replace("[[points]]", MIX, 1)
    assert was in text
    assert says in refused(tmp_path / "s.toml", text.replace(was, becomes))


def test_lists_are_crossed_and_named(tmp_path: Path) -> None:
    text = GOOD.replace("connections = 10", 'connections = [10, 20]\npage = ["1kB.bin", "8kB.txt"]')
    (tmp_path / "s.toml").write_text(text)
    _, sweep = load_sweep(str(tmp_path / "s.toml"))
    assert [p.name for p in sweep.load_points] == [
        f"a-c{count}-{page}" for count in (10, 20) for page in ("1kb.bin", "8kb.txt")
    ]


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("connections = 10", "connections = 0", "points.0.connections"),
        ("connections = 10", "conections = 10", "did you mean 'connections'?"),
        ("duration_s = 5", "duration_s = 0", "points.0.duration_s"),
        ("duration_s = 5", "duration_s = 5\nrate_rps = -1", "points.0.rate_rps"),
        ("duration_s = 5", 'duration_s = 5\npage = "3kB.bin"', "unknown page"),
        ("duration_s = 5", "duration_s = 5\nconnections = [1, 1]", "Cannot overwrite"),
        ("connections = 10", "connections = [10, 10]", "two points"),
        ("blocks = 2", "blocks = 0", "blocks"),
        ('name = "a"', 'name = "A b/../c"', "points.0.name"),
        ('title = "t"', 'title = "t"\ndisturb = 1', "disturb: unknown key"),
        ("[[points]]", "[points]", "points"),
        ("connections = 10", "connections = ", "not TOML"),
        ("connections = 10", "connections = [10, true]", "points.0.connections.1"),
        ("duration_s = 5", f"duration_s = {10**400}", "points.0.duration_s"),
        ("duration_s = 5", "duration_s = 5\nkeepalive = 1", "points.0.keepalive"),
        ("duration_s = 5", "duration_s = 5\nrequests = 5\nrequests_per_connection = 2", "points.a.requests: so is"),
        ("duration_s = 5", 'duration_s = 5\nresumption = true\ntls = "none"', "points.a.resumption: there is no TLS"),
        ("duration_s = 5", 'duration_s = 5\nsubject = ["eror"]', "points.0.subject.0: input should be 'errors' or"),
        ("duration_s = 5", 'duration_s = 5\nsubject = ["errors", "errors"]', "points.a.subject: 'errors' stands"),
        ("duration_s = 5", 'duration_s = 5\ntls = "egde"', "points.0.tls"),
        ("blocks = 2", 'blocks = "2"', "blocks"),
    ],
)
def test_bad_sweeps_are_refused(tmp_path: Path, was: str, becomes: str, says: str) -> None:
    assert was in GOOD
    assert says in refused(tmp_path / "bad.toml", GOOD.replace(was, becomes))


def test_whole_numbers_do_where_seconds_and_rates_are_wanted(tmp_path: Path) -> None:
    """`duration_s = 5` is 5.0 s; `requests`, `routes = 1` and `tls = "none"` may be said."""
    path = tmp_path / "s.toml"
    path.write_text(GOOD + 'rate_rps = [100, 200.5]\nwarmup_s = 0\nrequests = 50\nroutes = 1\ntls = "none"\n')
    points = load_sweep(str(path))[1].load_points
    assert [(p.name, p.rate_rps, p.duration_s, p.warmup_s) for p in points] == [
        ("a-r100", 100.0, 5.0, 0.0),
        ("a-r200.5", 200.5, 5.0, 0.0),
    ]
    assert all(isinstance(value, float) for p in points for value in (p.rate_rps, p.duration_s, p.warmup_s))
    assert all(LoadPoint.model_validate_json(p.model_dump_json()) == p for p in points)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (PermissionError(13, "Permission denied"), "cannot be read"),
        (FileNotFoundError(2, "No such file or directory"), "there is no file"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(fault: OSError, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a folder that this user may not look into, where it cannot even be seen whether the file is there."""

    def closed(_path: Path, *_: object, **__: object) -> str:
        raise fault

    monkeypatch.setattr(Path, "read_text", closed)
    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(UsageError) as caught:
        load_sweep("/closed/s.toml")
    assert says in str(caught.value) and "/closed/s.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("connections", "cpus", "threads"),
    [(1000, 1, 1), (1000, 2, 2), (1000, 3, 2), (1000, 8, 4), (1000, 64, 4), (999, 2, 1), (999, 4, 3), (1000, None, 1)],
)
def test_threads_at_most_are_as_many_as_a_machine_has(connections: int, cpus: int | None, threads: int) -> None:
    """So many that each has as many connections; a number of threads stays, for the plan to refuse."""
    point = {"name": "p", "generator": "wrk", "connections": connections, "duration_s": 2.0, "threads_at_most": 4}
    (spec,) = Sweep.model_validate({"title": "t", "question": "q", "blocks": 1, "points": [point]}).load_points
    settled = spec.on_cpus(cpus)
    assert (settled.threads, settled.threads_at_most) == (threads, None)
    assert settled.model_copy(update={"threads": 256}).on_cpus(cpus).threads == 256
