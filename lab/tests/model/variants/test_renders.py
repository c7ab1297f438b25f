"""Renders kept on disk: found again by content alone, never older than a file that was read, and never needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.model.variants import kustomize
from lab.model.variants.kustomize import Renders

OVERLAY = "resources: [../base]\n"
BASE = "resources: [object.yaml]\n"
COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonAnnotations: {knob: 'KNOB'}\n"
OBJECT = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {key: VALUE}}\n"

Render = Callable[..., tuple[bytes, int]]


def write(folder: Path, name: str, **files: str) -> Path:
    (folder / name).mkdir(parents=True)
    for file, text in files.items():
        (folder / name / f"{file}.yaml").write_text(text)
    return folder / name


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    write(tree, "base", kustomization=BASE, object=OBJECT)
    write(tree, "overlay", kustomization=OVERLAY)
    write(tree, "a", kustomization=COMPONENT.replace("KNOB", "a"))
    write(tree, "b", kustomization=COMPONENT.replace("KNOB", "b"))
    return tree


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Renders:
    renders = Renders(tmp_path / "renders")
    monkeypatch.setattr(kustomize, "CACHE", renders)
    return renders


@pytest.fixture
def render(kept: Renders, monkeypatch: pytest.MonkeyPatch) -> Render:
    """Of a tree and components: the render, as a new process makes it, and how often kustomize was started for it."""
    started: list[Path] = []
    real = kustomize._kustomize  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(kustomize, "_kustomize", lambda folder: (started.append(folder), real(folder))[1])

    def render(tree: Path, *components: str) -> tuple[bytes, int]:
        kustomize._build.cache_clear()  # pyright: ignore[reportPrivateUsage]
        started.clear()
        return kustomize.render([tree / "overlay"], [tree / name for name in components]), len(started)

    return render


def test_the_same_content_is_rendered_once_for_all_processes_wherever_it_lies(
    tree: Path, render: Render, tmp_path: Path
) -> None:
    first, started = render(tree, "a")
    assert started == 1 and b"VALUE" in first
    assert render(tree, "a") == (first, 0)
    elsewhere = shutil.copytree(tree, tmp_path / "far" / "away")
    assert render(elsewhere, "a") == (first, 0)


@pytest.mark.parametrize(
    "file", ["overlay/kustomization.yaml", "base/kustomization.yaml", "base/object.yaml", "a/kustomization.yaml"]
)
def test_any_file_that_changes_is_a_new_render(tree: Path, render: Render, file: str) -> None:
    before, _ = render(tree, "a")
    changed = tree / file
    stat = changed.stat()
    changed.write_text(changed.read_text() + "commonLabels: {new: label}\n")
    if file == "base/object.yaml":  # as small and as old as before: its content decides
        changed.write_text(OBJECT.replace("VALUE", "OTHER"))
        os.utime(changed, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        kustomize._content.cache_clear()  # pyright: ignore[reportPrivateUsage]  (a new process)
    after, started = render(tree, "a")
    assert started == 1 and after != before
    assert render(tree, "a") == (after, 0)


def test_a_file_that_is_renamed_and_another_order_of_components_is_a_new_render(tree: Path, render: Render) -> None:
    first, _ = render(tree, "a", "b")
    second, started = render(tree, "b", "a")
    assert started == 1 and (b"knob: b" in first, b"knob: a" in second) == (True, True)
    (tree / "base/object.yaml").rename(tree / "base/renamed.yaml")
    with pytest.raises(kustomize.BuildError, match="object.yaml"):
        render(tree)
    (tree / "base/kustomization.yaml").write_text("resources: [renamed.yaml]\n")
    assert render(tree)[1] == 1


def test_another_kustomize_renders_anew(
    tree: Path, render: Render, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    render(tree)
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "kustomize"
    other.write_text("#!/bin/sh\necho 'kind: Other'\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    assert render(tree) == (b"kind: Other\n", 1)


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[: len(whole) // 2], lambda _: b"", lambda whole: whole[:-9] + b"?" + whole[-8:]]
)
def test_a_damaged_entry_is_rendered_and_written_again(
    tree: Path, render: Render, kept: Renders, damage: Callable[[bytes], bytes]
) -> None:
    first, _ = render(tree)
    (entry,) = kept.folder.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert render(tree) == (first, 1)
    assert render(tree) == (first, 0)
    shutil.rmtree(kept.folder)
    kept.folder.write_text("a file is in its way, which stops root, too")
    assert render(tree) == render(tree) == (first, 1), "a folder that cannot be written is done without"


def test_the_folder_is_bounded_and_the_longest_unwanted_goes_first(tmp_path: Path) -> None:
    kept = Renders(tmp_path, max_bytes=4000)
    for number in range(10):
        kept.put(f"{number}", os.urandom(500))
        os.utime(tmp_path / f"{number}.zst", ns=(number, number))
        assert kept.get("0") is not None, "it is wanted again and again"
        assert sum(entry.stat().st_size for entry in tmp_path.iterdir()) <= 4000
    assert kept.get("1") is None and kept.get("9") is not None


def test_processes_at_once_get_whole_renders(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from lab.model.variants.kustomize import Renders
kept = Renders(Path({str(tmp_path)!r}), max_bytes=40_000)
for turn in range(40):
    key = str(turn % 7)
    found = kept.get(key)
    assert found is None or found == key.encode() * 20_000, "torn"
    kept.put(key, key.encode() * 20_000)
    kept.put(f"other-{{os.getpid()}}-{{turn}}", os.urandom(3_000))
"""
    processes = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert not list(tmp_path.glob(".*"))
