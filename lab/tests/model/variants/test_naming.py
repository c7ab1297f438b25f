"""Names of variants: every spelling leads to one present name, and every former one to a variant that there is."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.model.variants.knobs import MANIFESTS, knob_names, load_knob
from lab.model.variants.naming import (
    aliases,
    find_present_name,
    is_variant,
    join_name,
    name_in,
    overlay_names,
    present_arm,
    root_of,
    split_name,
    stored_name,
)
from lab.model.variants.variants import covering_names, load_chain, load_overlay, load_variant, variant_names
from lab.studies.study_files import list_studies, load_study


@pytest.mark.parametrize(
    ("typed", "present", "baseline"),
    [
        ("ingress-nginx", "ingress-nginx", None),
        ("baseline", "ingress-nginx", None),
        ("keepalive", "keepalive", "ingress-nginx"),
        ("somaxconn-32768", "ingress-nginx+somaxconn-32768", "ingress-nginx"),
        ("baseline+somaxconn-32768", "ingress-nginx+somaxconn-32768", "ingress-nginx"),
        ("ingress-nginx+somaxconn-32768", "ingress-nginx+somaxconn-32768", "ingress-nginx"),
        ("backlog-4096", "somaxconn-1+somaxconn-4096", "ingress-nginx+somaxconn-1"),
        ("backlog-1+somaxconn-4096", "somaxconn-1+somaxconn-4096", "ingress-nginx+somaxconn-1"),
        ("ingress-nginx+somaxconn-1++somaxconn-4096", "somaxconn-1+somaxconn-4096", "ingress-nginx+somaxconn-1"),
        ("log-off+lua-bypassed", "access-log-off+lua-bypass", "ingress-nginx+access-log-off"),
        ("f5-keepalive-320", "nginx-f5+nginx-f5-keepalive-320", "nginx-f5"),
        ("nginx-ngf-2-3+ngf-2.4", "nginx-ngf-2.3+nginx-ngf-2.4", "nginx-ngf+nginx-ngf-2.3"),
        ("okd-threads-4", "okd+okd-threads-4", "okd"),
        ("traefik-servers-transport", "traefik-servers-transport", "traefik"),
        (
            "ports-28000+use-gzip",
            "upstream-keepalive-off+port-range-200++port-range-28000++use-gzip",
            "upstream-keepalive-off+port-range-200++port-range-28000",
        ),
        ("metrics-off", "ingress-nginx", None),
    ],
)
def test_a_variant_has_one_name_however_it_is_spelled(typed: str, present: str, baseline: str | None) -> None:
    overlay = load_overlay(typed)
    assert (overlay.name, overlay.baseline) == (present, baseline)
    assert find_present_name(typed) == find_present_name(present) == present
    assert is_variant(typed)


def test_what_lies_on_a_parent_without_a_folder_is_rendered_over_it() -> None:
    one_on_the_other, both = (load_variant(f"{parent}use-gzip+keep-alive-200") for parent in ("", "ingress-nginx+"))
    assert one_on_the_other.manifests == both.manifests
    assert (one_on_the_other.own_knobs, both.own_knobs) == (("keep-alive-200",), ("use-gzip", "keep-alive-200"))
    names = [overlay.name for overlay in load_chain(one_on_the_other.name)]
    assert names == ["ingress-nginx", "ingress-nginx+use-gzip", "use-gzip+keep-alive-200"]


def test_an_arm_is_renamed_as_its_variant_and_a_name_at_a_commit_keeps_the_commit() -> None:
    assert present_arm("baseline-again") == "ingress-nginx-again"
    assert present_arm("log-off-null-1") == "ingress-nginx+access-log-off-null-1"
    assert present_arm("metrics-off-again") == "metrics-off-again", "which did something else then"
    assert present_arm("tls") == "tls"
    assert find_present_name("baseline@0f0f0f") == "ingress-nginx@0f0f0f"


def test_every_former_name_leads_to_a_present_one() -> None:
    former = aliases()
    for old, now in {**former.variants, **former.gone}.items():
        assert find_present_name(old) == find_present_name(now) == now, old
        assert load_chain(now)[-1].name == now, old
    assert set(former.components.values()) <= set(knob_names())


def test_no_former_name_is_one_of_now() -> None:
    former, now = aliases(), {*variant_names(), *overlay_names(), *knob_names()}
    assert not now & {*former.variants, *former.components, *former.gone}
    assert not former.variants.keys() & former.gone.keys()
    for name in former.variants.keys() & former.components.keys():
        assert split_name(former.variants[name])[1][-1] == former.components[name], "a name that means two things"


def test_a_folder_is_for_what_one_component_on_a_parent_is_not() -> None:
    """Roots, compositions, what the studies' files are about, and what others stand on, or that stands for another."""
    studied = set[str]()
    for file in map(load_study, list_studies()):
        studied.update(*(each.variants for each in (file, *file.changes, *file.tables)))
    overlays = [load_overlay(name) for name in overlay_names()]
    parents = {overlay.baseline for overlay in overlays}
    bearing = {"tls", "balancer", "balancer-tls"}  # on which `bench --configmap` sets the keys of a file
    left = [each for each in overlays if each.baseline and len(each.own_knobs) == 1 and not each.stands_in_for]
    assert {each.name for each in left} <= studied | parents | bearing


def test_the_name_of_a_component_says_its_system_and_it_is_listed_on_variants_that_there_are() -> None:
    listed = {*variant_names()}
    for name in knob_names():
        root = load_overlay(root_of(name))
        assert root.baseline is None and not root.own_knobs, name
        for parent in load_knob(name).on.split():
            assert is_variant(parent) and join_name(find_present_name(parent), [name]) in listed, name
    assert [name for name in listed if find_present_name(name) != name] == []


def test_each_component_is_held_by_one_of_the_covering_variants() -> None:
    names = covering_names()
    assert len(names) == len(set(names)) < len(variant_names())
    assert {knob for name in names for overlay in load_chain(name) for knob in overlay.own_knobs} == set(knob_names())


def test_older_manifests_have_a_variant_by_its_former_name(tmp_path: Path) -> None:
    """Manifests of before: without the file, and with two folders by their former names."""
    old = Path(shutil.copytree(MANIFESTS, tmp_path / "manifests"))
    (old / "aliases.toml").unlink()
    (old / "overlays/ingress-nginx").rename(old / "overlays/baseline")
    of_keepalive = ["keep-alive-requests-10000", "upstream-keepalive-requests-1000"]
    for name, components in (("keepalive", of_keepalive), ("backlog-1", ["somaxconn-1"])):
        (old / "overlays" / name).mkdir(exist_ok=True)
        listed = ", ".join(f"../../components/{component}" for component in components)
        (old / "overlays" / name / "kustomization.yaml").write_text(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
            f"metadata: {{annotations: {{lab/title: of before}}}}\nresources: [../baseline]\ncomponents: [{listed}]\n"
        )
    for name, there in {
        "ingress-nginx": "baseline",
        "ingress-nginx+somaxconn-1": "backlog-1",
        "somaxconn-1+somaxconn-4096": "backlog-1+somaxconn-4096",
        "ingress-nginx+use-gzip": "baseline+use-gzip",
        "keepalive": "keepalive",
    }.items():
        found = load_variant(name, old)
        assert (name_in(name, old), found.name) == (there, name)
        assert found.baseline == load_overlay(name).baseline
        assert found.manifests_sha256 == load_variant(name).manifests_sha256


def test_a_faulty_file_of_names_is_refused_by_its_place(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(MANIFESTS, tmp_path / "manifests"))
    (folder / "aliases.toml").write_text("[variants]\nold = 1\n")
    with pytest.raises(UsageError, match=r"manifests/aliases\.toml"):
        find_present_name("old", folder)


def test_a_variant_that_did_something_else_then_keeps_its_name_in_a_stored_run() -> None:
    gone = tomllib.loads((MANIFESTS / "aliases.toml").read_text())["gone"]
    assert [stored_name(name) for name in gone] == list(gone)
    assert stored_name("baseline") == "ingress-nginx"
