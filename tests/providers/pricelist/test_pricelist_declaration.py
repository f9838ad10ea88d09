"""Declarations: the shipped ones are valid, and a faulty one is reported in one line, as an error of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch import providers
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.errors import ProviderError, SettingsError
from gpuwatch.providers.pricelist.declaration import built_in_sources, own_sources, read_source
from gpuwatch.providers.pricelist.market import selected_sources
from gpuwatch.settings import load

GOOD = """
name = "mine"
title = "My cloud"
url = "https://api.example.com/prices"
rows = "plans.*"
[fields]
price = "usd"
gpu = "gpu"
count = "n"
"""


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    return path


def test_what_ships_is_sound_and_named_as_its_file() -> None:
    sources = built_in_sources()
    assert {"oracle", "scaleway", "vultr", "ovh", "verda", "lium", "cloudrift", "akash"} <= sources.keys()
    assert all(name == source.name for name, source in sources.items())
    assert {name for name, source in sources.items() if source.kind == "live"} == {"lium", "cloudrift"}


def test_every_gpu_that_a_declaration_names_is_in_the_catalogue() -> None:
    for source in built_in_sources().values():
        for machine in source.machines:
            if machine.gpu is not None:
                assert catalog().resolve(machine.gpu, machine.card_gib).known, (source.name, machine.gpu)


def test_the_option_names_every_source_that_ships() -> None:
    [spec] = [spec for spec in providers.info("pricelist").options if spec.name == "sources"]
    assert set(spec.choices) == built_in_sources().keys()


def test_by_default_the_sources_that_count_whole_prices_are_asked() -> None:
    names = {source.name for source in selected_sources({})}
    assert names == built_in_sources().keys() - {"linode", "daytona", "cudo"}
    assert [source.name for source in selected_sources({"sources": ("cudo", "ovh")})] == ["cudo", "ovh"]


def test_an_owners_file_is_asked_too_and_takes_the_place_of_one_that_ships(declared: Path) -> None:
    assert [
        selected_source.name for selected_source in selected_sources({"sources": ("ovh",), "files": (str(declared),)})
    ] == ["ovh", "mine"]
    declared.write_text(GOOD.replace('"mine"', '"ovh"'))
    [source] = selected_sources({"sources": ("ovh",), "files": (str(declared),)})
    assert source.title == "My cloud"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("name =", "nmae ="), "nmae"),
        (('"mine"', '"My Cloud"'), "name: at most 24 lowercase letters"),
        (("https://", "ftp://"), "url: https://"),
        (("https://", "http://"), "url: https://"),
        (("/prices", "/prices?all=1"), "its query in params"),
        (('"plans.*"', '"plans"'), "expected a path to rows"),
        (('price = "usd"', ""), "price"),
        (('price = "usd"', 'price = "a..b"'), "expected a path to a field"),
        (('price = "usd"', "price = 5"), "fields.price"),
        (("[fields]", 'kind = "live"\n[fields]'), "live requires fields.free"),
        (("[fields]", "price_scale = -1.0\n[fields]"), "price_scale"),
        (("[fields]", "every_s = 1\n[fields]"), "every_s"),
        (("[fields]", 'currency = "euro"\n[fields]'), "currency"),
        (("[fields]", 'gpu_pattern = "("\n[fields]'), "invalid regular expression"),
        (("[fields]", 'places = ["a"]\n[fields]'), "places and {place}"),
        (("[fields]", 'body = "{}"\n[fields]'), "body: requires method POST"),
        (("[fields]", 'method = "POST"\nbody = "{"\n[fields]'), "truncated"),
        (('gpu = "gpu"', ""), "it names the GPU"),
        (("[fields]", "[fields"), "line"),
        (("title", "name"), "overwrite"),
    ],
)
def test_a_wrong_declaration_is_reported_in_one_line(declared: Path, change: tuple[str, str], fault: str) -> None:
    declared.write_text(GOOD.replace(*change, 1))
    with pytest.raises(ValueError, match=r"mine\.toml: ") as caught:
        read_source(declared)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_too_large_or_not_there_is_reported(tmp_path: Path) -> None:
    for name, body in {"a": b"\xff\xfe", "b": b"#" * 300_000, "c": b"x = " + b"[" * 100_000}.items():
        (tmp_path / name).write_bytes(body)
        with pytest.raises(ValueError, match=f"{name}: "):
            read_source(tmp_path / name)
    for path in (tmp_path, tmp_path / "none.toml"):
        with pytest.raises(ValueError, match=str(path)):
            read_source(path)


def test_two_files_with_one_name_are_a_fault(declared: Path, tmp_path: Path) -> None:
    (tmp_path / "again.toml").write_text(GOOD)
    with pytest.raises(ValueError, match="another file already declares mine"):
        own_sources((str(declared), str(tmp_path / "again.toml")))


def test_a_wrong_declaration_stops_gpuwatch_as_a_fault_of_the_settings(declared: Path, tmp_path: Path) -> None:
    declared.write_text(GOOD.replace('"plans.*"', '"plans"'))
    settings = tmp_path / "gpuwatch.toml"
    settings.write_text(f'[providers.pricelist.options]\nfiles = ["{declared}"]\nsources = ["oracel"]\n')
    with pytest.raises(SettingsError) as caught:
        load(settings, env={}, cwd=tmp_path)
    about_files = [line for line in caught.value.faults if "providers.pricelist.options.files" in line]
    assert len(about_files) == 1
    assert "expected a path to rows" in about_files[0]
    assert any("sources" in line and "oracle" in line for line in caught.value.faults)


def test_a_declaration_that_went_away_since_is_an_error_of_the_search(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match=r"pricelist: .*gone\.toml"):
        selected_sources({"files": (str(tmp_path / "gone.toml"),)})
