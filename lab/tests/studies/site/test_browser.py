"""The report in a browser: axe finds nothing serious on any page, light or dark, wide or on a phone; no page is wider than the screen; paper has every figure.

Chromium is asked by its own DevTools protocol. Skips where there is no Chromium, or no axe-core, which `scripts/test` brings from npm.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import websocket

from lab.base.files import reference_folder
from lab.records.store import RunStore
from lab.report.html import run
from lab.report.result import RunResult
from lab.studies.site import site
from lab.tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.committed]

AXE = Path(__file__).parents[4] / ".cache" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
)  # fmt: skip
ANSWERS_S = 300
"""A page is drawn, or looked through, in a few seconds; on a busy machine in many."""
SOME = "aws-a1-log drain keepalive-pairs kill-replicas-2 okd-threads qinng-workers quick-keepalive successors-kind"
OF_SCHEMES = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""Scheme → which of axe's rules: another scheme has other colours, and nothing else."""
SERIOUS = """axe.run({include: INCLUDE, exclude: [".canvas"]}, {resultTypes: ["violations"], ...OPTIONS}).then((found) => found.violations
  .filter((each) => each.impact === "serious" || each.impact === "critical")
  .map((each) => `${each.id}: ${each.nodes.length} times, as in ${each.nodes[0].html.slice(0, 200)}: ${each.nodes[0].failureSummary}`))"""
PRINTED = """addEventListener("beforeprint", () => { window.onPaper = document.querySelectorAll("figure.drawn .canvas:has(.main-svg)").length; })"""


class Browser:
    """One page of a Chromium of its own."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        self._numbers = count(1)
        self._process = subprocess.Popen(
            [CHROMIUM, *SWITCHES, f"--user-data-dir={folder}", "about:blank"], stderr=subprocess.DEVNULL
        )
        told = folder / "DevToolsActivePort"
        until(lambda: told.is_file() and told.read_text().count("\n") == 1, seconds=120)
        port, path = told.read_text().split("\n")
        self._socket = websocket.create_connection(
            f"ws://127.0.0.1:{port}{path}", suppress_origin=True, timeout=ANSWERS_S
        )
        self._session = ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        of = {"sessionId": self._session} if self._session else {}
        self._socket.send(json.dumps({"id": number, "method": method, "params": params, **of}))
        while (told := json.loads(self._socket.recv())).get("id") != number:
            pass
        assert "error" not in told, told["error"]
        return told["result"]

    def run(self, script: str) -> Any:
        """What an expression comes to, its promise kept."""
        told = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def show(self, path: Path, width: int, scheme: str) -> None:
        """A file in a window so wide, by a reader who prefers this scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=path.as_uri())
        self.run('new Promise((done) => document.readyState === "complete" ? done() : addEventListener("load", done))')

    def close(self) -> None:
        self._session = ""
        self.ask("Browser.close")
        self._socket.close()
        self._process.wait(60)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    if not AXE.is_file():
        pytest.skip(f"no {AXE}: scripts/bring bats brings it from npm")
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of some runs, and of none of one's own: every page, and every kind of table and figure."""
    folder = tmp_path_factory.mktemp("some")
    for name in ("findings.toml", "history.csv", *SOME.split()):
        (folder / name).symlink_to(reference_folder() / name)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("LAB_REFERENCE", str(folder))
        return site.build_site(folder / "report").path


@pytest.fixture(scope="module")
def of_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.write_page(
        RunResult(RunStore.open(f"{reference_folder()}/keepalive-pairs")), tmp_path_factory.mktemp("run")
    )


def pages(browser: Browser) -> Iterator[str]:
    for name in browser.run('[...document.querySelectorAll("main > article")].map((each) => each.id)'):
        browser.run(f"location.hash = {json.dumps(name)}")
        yield name


# Contrast, of which alone the dark ones are asked, does not depend on the width.
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1300, "light"),
        pytest.param(390, "light", marks=pytest.mark.long),
        pytest.param(1300, "dark", marks=pytest.mark.long),
    ],
)
def test_axe_finds_nothing_serious(browser: Browser, report: Path, of_a_run: Path, width: int, scheme: str) -> None:
    """And nothing makes a page wider than the screen: what is wide scrolls by itself."""
    found: dict[str, list[str]] = {}
    serious = SERIOUS.replace("OPTIONS", json.dumps(OF_SCHEMES[scheme]))
    for path in (report, of_a_run):
        browser.show(path, width, scheme)
        browser.run(AXE.read_text())
        found[f"what every page of {path.name} has"] = browser.run(serious.replace("INCLUDE", '[["html"]]'))
        for name in pages(browser) if path is report else ():
            found[name] = browser.run(serious.replace("INCLUDE", json.dumps([[f'[id="{name}"]']])))
            assert browser.run("document.documentElement.scrollWidth") <= width, name
        assert browser.run("document.documentElement.scrollWidth") <= width
    assert len(found) > 5
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_paper_has_every_figure(browser: Browser, report: Path) -> None:
    browser.show(report, 1300, "dark")
    browser.run(
        'new Promise((done) => { const waiting = () => window.Plotly ? done() : setTimeout(waiting, 50); location.hash = "nds"; waiting(); })'
    )
    browser.run(PRINTED)
    paper = base64.b64decode(browser.ask("Page.printToPDF")["data"])
    assert paper.startswith(b"%PDF-")
    assert browser.run("window.onPaper") == browser.run('document.querySelectorAll("figure.drawn").length') > 10
