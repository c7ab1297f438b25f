"""The pages of a migration: short enough for every successor and file, with nothing cut that is to be copied."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lab.analysis.migration.mapping import Migration, MigrationPlan, find_streams
from lab.analysis.migration.table import ANNOTATIONS, STREAMS, list_successors, read_seen
from lab.analysis.verification.compare import find_verified
from lab.base.errors import UsageError
from lab.base.files import reference_folder
from lab.experiments.migration import plan as planning
from lab.experiments.migration.folder import writable_lines
from lab.report.markdown import render_markdown
from lab.report.tables.migration import CONTRADICTED, overview, page
from lab.report.terminal import render_terminal
from lab.studies.exhibits.streams import SERVICES
from lab.systems.manifests.routes import PREFIX

TESTDATA = Path(planning.__file__).parents[2] / "tests" / "experiments" / "migration" / "testdata"
MINE = b"""
kind: ConfigMap
data:
  proxy-buffer-size: 128k
  log-format-escape-json: 'true'
  log-format-upstream: '{"at": "$time_iso8601", "status": $status}'
  worker-shutdown-timeout: "300"
  proxy-next-upstream: error timeout invalid_header http_502 http_503 http_504
  server-name-hash-bucket-size: "256"
  use-gzip: "true"
  client-max-body-size: 10m
"""
INGRESSES = "---\n".join(
    yaml.safe_dump(
        {"kind": "Ingress", "metadata": {"name": f"shop-{number}", "annotations": dict.fromkeys(names, "true")}}
    )
    for number, names in enumerate(
        [[f"{PREFIX}{name}" for name in sorted(ANNOTATIONS)], [f"{PREFIX}rewrite-target", f"{PREFIX}proxy-buffers"]]
    )
).encode()
PAGE_LINES, WIDTH = 45, 110
HEADS = (
    "IN SHORT", "BREAKS OR COSTS A LOT", "WEAKER PROTECTION", "LOOKS DIFFERENT", "COPY", "NOTHING TO DO", "MINOR", "SOURCES", "NEXT",
)  # fmt: skip


def fields() -> Iterator[tuple[str, bytes]]:
    for path in sorted(TESTDATA.iterdir()):
        try:
            planning.plan_migration(path.name, path.read_bytes(), to=["caddy"])
        except UsageError:
            continue
        yield path.name, path.read_bytes()


def planned(
    system: str, content: bytes | None = MINE, ingresses: bytes = b"", name: str = "mine.yaml"
) -> MigrationPlan:
    return planning.plan_migration(
        name if content else "", content, [("i.yaml", ingresses)] if ingresses else [], [system] if system else []
    )


def lines(plan: MigrationPlan, **others: bool) -> list[str]:
    return [line.plain for line in render_terminal(page(plan, read_seen(), **others), 110)]


def snippet(printed: list[str]) -> list[str]:
    begins = [place for place, line in enumerate(printed) if line.startswith("COPY")]
    return [line[2:] for line in printed[begins[0] + 1 : printed.index("", begins[0])]] if begins else []


def refuse_long(printed: list[str], most: int) -> None:
    assert len(printed) <= most, "\n".join(printed)
    copied = {f"  {line}" for line in snippet(printed)}
    for line in printed:
        word = max(map(len, line.split()), default=0)
        assert len(line) <= WIDTH or (line in copied and word > WIDTH / 2) or (line in copied and ": " in line), line


@pytest.mark.parametrize("system", list_successors())
def test_every_page_is_short_and_narrow_and_has_its_parts(system: str) -> None:
    """For a ConfigMap, with Ingresses that have every annotation, with these alone, and with nothing."""
    for content, ingresses in ((MINE, b""), (MINE, INGRESSES), (None, INGRESSES), (None, b"")):
        printed = lines(planned(system, content, ingresses))
        refuse_long(printed, PAGE_LINES)
        found = [head for line in printed for head in HEADS if line.startswith(head)]
        assert found == [head for head in HEADS if head in found] and len(found) >= len(HEADS) - 2, found
        assert (
            printed[0].startswith("ingress-nginx 1.15.1 → ")
            and planned(system).migrations[0].about.setting in printed[0]
        )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "content"), [pytest.param(*each, id=each[0]) for each in fields()])
def test_every_page_about_a_file_from_the_field_is_short_and_narrow(name: str, content: bytes) -> None:
    for system in list_successors():
        refuse_long(lines(planned(system, content, name=name)), PAGE_LINES)
    refuse_long(lines(planned("", content, name=name), one_line_each=True), 40)


def test_all_successors_have_one_line_each_and_the_one_that_breaks_least_is_first() -> None:
    for content, ingresses in ((MINE, b""), (MINE, INGRESSES), (None, INGRESSES), (None, b"")):
        printed = lines(planned("", content, ingresses), one_line_each=True)
        refuse_long(printed, 40)
        rows = [line for line in printed if re.match(rf"(?:{'|'.join(list_successors())}) ", line)]
        assert [sum(line.startswith(f"{system} ") for line in rows) for system in list_successors()] == [1] * len(
            list_successors()
        )
        breaks = [int(re.findall(r" (\d+)", row)[4 if content or ingresses else 0]) for row in rows]
        assert breaks == sorted(breaks)
    versions = "\n".join(lines(planned(""), one_line_each=True))
    assert all(f"{each.system} {each.about.value}" in " ".join(versions.split()) for each in planned("").migrations)


def documents(printed: list[str]) -> list[object]:
    return list(yaml.safe_load_all("\n".join(snippet(printed))))


def flat(value: object, path: str = "", whole: Collection[str] = ()) -> dict[str, object]:
    """Path → value; of arguments each is one, and a value at a path in `whole` is not divided."""
    if isinstance(value, dict) and path.lstrip(".") not in whole:
        return {key: leaf for name, item in value.items() for key, leaf in flat(item, f"{path}.{name}", whole).items()}
    if isinstance(value, list) and path.endswith(("Arguments", "args")):
        return {f"{path}.{item}": item for item in value}
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return flat(value[0], f"{path}.0", whole)
    return {path: value}


@pytest.mark.parametrize("system", list_successors())
def test_what_is_to_be_copied_is_yaml_and_nothing_in_it_is_cut(system: str) -> None:
    """However it is laid out: one setting a line, or as few lines as possible."""
    plan = planned(system)
    written = {line.setting: line.to for line in writable_lines(plan.migrations[0])}
    for printed in (lines(plan), lines(plan, every_line=True), lines(planned(system, MINE, INGRESSES))):
        for path, value in (
            pair
            for document in documents(printed)
            for pair in flat(document, "", {name.rpartition(" ")[2] for name in written}).items()
        ):
            if path.endswith(".kind"):
                continue
            if path.split(".")[1] in ("additionalArguments", "args"):
                name, _, text = str(value).partition("=")
                assert written.get(f"{name}=") == text or name in written or str(value) in written.values(), value
                continue
            names = [name for name in written if path.lstrip(".").removeprefix("data.") == name.rpartition(" ")[2]]
            assert names and any(yaml.safe_load(written[name]) == value or written[name] == value for name in names), (
                path
            )


def test_a_long_snippet_says_the_same_in_few_lines() -> None:
    plan = planned("envoy-gateway")
    short, whole = lines(plan), lines(plan, every_line=True)
    few, many = (
        {key: value for each in documents(printed) for key, value in flat(each).items()} for printed in (short, whole)
    )
    assert few.items() <= many.items() and len(snippet(short)) < len(snippet(whole))


def test_the_page_sums_up_what_it_lists() -> None:
    for system in list_successors():
        printed = lines(planned(system), every_line=True)
        text = " ".join(" ".join(printed).split())
        total, fixed, by_copy = map(
            int,
            re.findall(r"IN SHORT (\d+) differences?: (\d+) you can fix before you switch \((\d+) by COPY\)", text)[0],
        )
        end = printed.index(next(line for line in printed if line.startswith(("MINOR", "COPY"))))
        numbered = [int(match[1]) for line in printed[:end] if (match := re.match(r" ?(\d+) ", line))]
        assert numbered == list(range(1, total + 1))
        assert sum(line.endswith("→ COPY") for line in printed[:end]) == by_copy
        assert total - fixed == sum(line.endswith("→ no setting") for line in printed[:end])


def test_what_was_seen_stands_with_its_run_and_what_is_reported_with_the_ledger() -> None:
    seen = {
        ("traefik-ingress-nginx", "upstream-keepalive-connections"): (
            "CPU per request 5 times that of x (run-a on apiserver)",
            "TF-05 inconclusive",
        )
    }
    for content in (MINE, None):
        printed = [line.plain for line in render_terminal(page(planned("traefik-ingress-nginx", content), seen), 110)]
        first = printed.index("BREAKS OR COSTS A LOT") + 1
        text = " ".join(line.strip() for line in printed[first : first + 4])
        assert printed[first].startswith(" 1 Backend connections are hardly reused: 2 idle ones per service (you: 320)")
        assert "Seen here: CPU per request 5 times that of x (run-a on apiserver)." in text
        assert "Reported: traefik#13123; the ledger says TF-05 inconclusive (just ledger)." in text
        assert len(printed) <= PAGE_LINES


SECTIONS = {
    "breaks": "BREAKS OR COSTS A LOT",
    "protection": "WEAKER PROTECTION",
    "clients": "LOOKS DIFFERENT (clients notice)",
    "backends": "MINOR",
}
CORS = b"kind: Ingress\nmetadata: {name: shop, annotations: {nginx.ingress.kubernetes.io/enable-cors: 'true'}}\n"
HERE, ELSEWHERE = "Seen here by just migrate --verify: ", "Seen by just migrate --verify with other Ingresses: "


def sections(printed: list[str]) -> dict[str, str]:
    """The text of each section whose title is a line of its own; a section ends at an empty line."""
    texts, title = dict[str, str](), ""
    for line in printed:
        title = line if line in SECTIONS.values() else title * bool(line)
        if title:
            texts[title] = " ".join(f"{texts.get(title, '')} {line}".split())
    return texts


@pytest.mark.parametrize("system", list_successors())
def test_what_verifications_saw_is_on_the_whole_page_once_under_its_consequence(system: str) -> None:
    """And on the short page, what concerns every file, for each consequence but that for backends."""
    for content, ingresses in ((MINE, b""), (MINE, INGRESSES), (None, CORS), (None, b"")):
        plan = planned(system, content, ingresses)
        found = find_verified(plan.migrations[0])
        texts = sections(lines(plan, every_line=True))
        for row, concerns in found:
            aspect, _, change = row["difference"].partition(": ")
            name = " ".join(f"{row['about'] if ' @' in aspect else aspect}: {change}".split())
            counts = {title: text.count(f" {name};") + text.count(f" {name}.") for title, text in texts.items()}
            assert {title: count for title, count in counts.items() if count} == {SECTIONS[row["consequence"]]: 1}, row
            elsewhere = texts[SECTIONS[row["consequence"]]].partition(ELSEWHERE)[2]
            assert (f" {name};" in f" {elsewhere}" or f" {name}." in f" {elsewhere}") != concerns, row
        printed = lines(plan)
        assert ELSEWHERE not in " ".join(" ".join(printed).split())
        if content is None:
            seen = {title for title, text in sections(printed).items() if HERE in text}
            about = {row["consequence"] for row, concerns in found if concerns} - {"backends"}
            assert seen == {SECTIONS[consequence] for consequence in about}


def test_a_page_names_what_verifications_saw_and_no_trap_states() -> None:
    texts = sections(lines(planned("haproxy", None)))
    assert f"{HERE}backend header proxy added; CONNECT; " in texts["WEAKER PROTECTION"]
    assert " client trailers added; " in texts["LOOKS DIFFERENT (clients notice)"]
    whole = " ".join(" ".join(lines(planned("haproxy", None), every_line=True)).split())
    assert whole.count("The backend's Server header reaches clients") == 1 and "client header server" not in whole
    assert "an upgrade to WebSocket" not in whole
    texts = sections(lines(planned("httpd", None), every_line=True))
    assert texts["BREAKS OR COSTS A LOT"].count("A path with %2F in it is answered 404") == 1
    assert "an encoded slash: " not in texts["BREAKS OR COSTS A LOT"]
    texts = sections(lines(planned("envoy", None), every_line=True))
    assert " the method LAB: 200 of the backend → 400; " in texts["BREAKS OR COSTS A LOT"]
    assert texts["BREAKS OR COSTS A LOT"].count("WebSockets are refused (you: they pass)") == 1
    assert "an upgrade to WebSocket" not in texts["BREAKS OR COSTS A LOT"]
    names = ("client header access-control-allow-credentials", "client header access-control-max-age")
    for ingresses in (b"", CORS):
        plan = planned("traefik-ingress-nginx", None, ingresses)
        short, whole = (sections(lines(plan, every_line=each))[SECTIONS["clients"]] for each in (False, True))
        assert (f"{HERE}{names[0]} missing; " in short) == bool(ingresses)
        assert (f" {names[1]}: missing" in whole.partition(ELSEWHERE)[2]) == (not ingresses)
    markdown = render_markdown(page(planned("caddy", None), {}))
    assert f"\n\n{HERE}" in markdown


STREAMING = """
kind: Ingress
metadata:
  name: chat
  annotations:
    nginx.ingress.kubernetes.io/proxy-buffering: "off"
    nginx.ingress.kubernetes.io/proxy-read-timeout: "3600"
    nginx.ingress.kubernetes.io/backend-protocol: GRPC
"""


@pytest.mark.parametrize("system", list_successors())
def test_a_file_whose_services_stream_leads_with_what_runs_show_of_that(system: str) -> None:
    """Of each kind the run that shows it, or the command of one; then the traps about it, those that were seen first."""
    plan, seen = planned(system, MINE, STREAMING.encode()), read_seen()
    printed = lines(plan)
    refuse_long(printed, PAGE_LINES)
    labels = ("YOU STREAM", "TOKEN STREAMS", "WEBSOCKETS", "GRPC", "NO RUN YET")
    begins = [place for place, line in enumerate(printed) if line.startswith(labels)]
    first = next(place for place, line in enumerate(printed) if line.startswith(("BREAKS", "YOUR SERVICES STREAM")))
    assert 2 <= len(begins) <= 4 and max(begins) < first
    whole = " ".join(" ".join(lines(plan, every_line=True)).split())
    for kind, title in STREAMS.items():
        runs = seen.get((system, title), ("", ""))[0]
        names = re.findall(r"(\S+) on (?:local|apiserver|kind)", runs)
        assert all((reference_folder() / name / "run.json").exists() for name in names)
        assert all(name in whole for name in names) and (
            names or f"--sweep {kind}" in whole or (kind == "grpc" and "just study streams --plan" in whole)
        )
    assert ("successors-events on local" in whole) == ((system, "token streams") in seen)
    (migration,) = plan.migrations
    about = [trap for trap in migration.traps if trap.line.row and trap.line.row.streams]
    assert ("YOUR SERVICES STREAM" in printed) == bool(about)
    if any(trap.line.row and trap.line.row.seen for trap in about):
        assert "Seen here: " in " ".join(printed[first : first + 4])


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"proxy-buffering": "off"}, ["events"]),
        ({"proxy-buffering": "on", "proxy-read-timeout": "599", "backend-protocol": "HTTPS"}, []),
        ({"proxy-read-timeout": "600"}, ["events", "websocket"]),
        ({"proxy-send-timeout": "1h"}, ["events", "websocket"]),
        ({"backend-protocol": "GRPCS"}, ["grpc"]),
        ({"configuration-snippet": "proxy_set_header Upgrade $http_upgrade;"}, ["websocket"]),
        ({"configuration-snippet": "proxy_set_header X-Upgraded yes;"}, []),
        ({"websocket-services": "chat"}, ["websocket"]),
    ],
)
def test_settings_that_show_streams(settings: dict[str, str], kinds: list[str]) -> None:
    """As annotations, and those that are keys in the ConfigMap, too; of a file without any nothing leads."""
    annotations = {f"{PREFIX}{name}": value for name, value in settings.items()}
    ingress = yaml.safe_dump({"kind": "Ingress", "metadata": {"name": "chat", "annotations": annotations}})
    plan = planned("envoy", None, ingress.encode())
    assert list(find_streams(plan)) == kinds
    assert all("(chat)" in reason for reasons in find_streams(plan).values() for reason in reasons)
    assert any("YOUR SERVICES STREAM" in line for line in lines(plan)) == bool(kinds)
    if settings.keys() <= {"proxy-buffering", "proxy-read-timeout", "proxy-send-timeout"}:
        assert list(find_streams(planned("envoy", yaml.safe_dump(settings).encode()))) == kinds


def test_kinds_of_long_answers_are_those_of_the_study() -> None:
    assert set(STREAMS.values()) <= {service.title for service in SERVICES.values()}


def test_what_is_ignored_today_is_named_with_what_is_meant() -> None:
    text = " ".join(" ".join(lines(planned("caddy", MINE, INGRESSES), every_line=True)).split())
    assert "IGNORED TODAY delete or correct client-max-body-size (you mean proxy-body-size)" in text
    assert "proxy-buffers (similar: proxy-buffer" in text
    assert "mine.yaml: 8 settings; 2 Ingresses with 140 annotations" in text


def test_a_warning_stands_with_what_trusts_everybody() -> None:
    plan = planned("traefik", b"use-forwarded-headers: true\n")
    text = " ".join(" ".join(lines(plan)).split())
    assert "forwardedHeaders.insecure=true" in text and "--entryPoints.websecure.forwardedHeaders.insecure=true" in text
    assert "Careful: trusts everybody, as you do today; better: the addresses of your load balancer." in text


def test_a_difference_of_several_ingresses_is_one() -> None:
    both = INGRESSES.replace(b"proxy-buffers", b"use-regex")
    text = "\n".join(lines(planned("envoy", None, both), every_line=True))
    assert text.count("rewrite-target (shop-0, shop-1): ") == 1 and text.count("rewrite-target (") == 1


def test_the_whole_mapping_has_every_setting_of_the_files_with_its_source() -> None:
    plan = planned("contour", MINE, INGRESSES)
    text = render_markdown(page(plan, {}, every_line=True))
    migration: Migration = plan.migrations[0]
    for line in (*migration.settings, *migration.annotations):
        assert line.key.rpartition("/")[2] in text
    for line in (line for trap in migration.traps for line in trap.lines):
        assert (
            f"→ {line.setting or 'no setting'} {' '.join(line.to.split())} (default: {line.default or 'none'})" in text
        )
        assert f"source: {line.source}" in text and (not line.note or line.note in text)


def test_markdown_has_the_same_differences_and_the_snippet_in_a_fence() -> None:
    plan = planned("traefik-ingress-nginx")
    text = render_markdown(page(plan, {}))
    assert text.count("```yaml\n") == 1 and "\n1. Backend connections are hardly reused" in text
    assert "**IN SHORT**" in text and "additionalArguments:\n" in text
    text = render_markdown(page(planned(""), {}, one_line_each=True))
    assert [text.count(f"\n| {system} |") for system in list_successors()] == [1] * len(list_successors())


def test_pages_of_several_successors_follow_each_other_and_an_overview_of_one_is_none() -> None:
    several = planning.plan_migration("mine", MINE, to=["envoy", "caddy"])
    printed = lines(several)
    assert [line for line in printed if line.startswith("ingress-nginx 1.15.1 → ")] == [
        f"ingress-nginx 1.15.1 → {each.about.setting}" for each in several.migrations
    ]
    assert overview(replace(several, migrations=several.migrations[:1]), {})


def test_the_worst_of_a_successor_is_nothing_that_the_ledger_contradicts() -> None:
    plan = planned("envoy-gateway")
    table = render_markdown(page(plan, {}, one_line_each=True))
    lines = (trap.line for trap in plan.migrations[0].traps)
    worst = next(line for line in lines if f" {line.differs[:20]}" in table)
    evidence = {("envoy-gateway", worst.key or worst.setting): ("", f"XX-01 {CONTRADICTED}")}
    assert f" {worst.differs[:20]}" not in render_markdown(page(plan, evidence, one_line_each=True))
