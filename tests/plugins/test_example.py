"""The example of `docs/write-a-provider.md`: its package is installed, seen by the commands, and passes the kit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpuwatch.ports import Query
from gpuwatch.providers.toolkit.post_processing import build_answer
from gpuwatch.testing.bench import NOW
from gpuwatch.testing.invariants import answer_problems
from tests.checkout import ROOT

PAGE = ROOT / "docs" / "write-a-provider.md"
LINES_MAX = 60


def files() -> dict[str, str]:
    """The page's files, by name."""
    return dict(re.findall(r"(?ms)^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a folder of files."""
    folder = tmp_path_factory.mktemp("mycloud")
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def site(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package installed, in a folder of its own."""
    target = tmp_path_factory.mktemp("site")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "-q",
        "install",
        "--no-deps",
        "--no-build-isolation",
    ]
    done = subprocess.run(
        [*pip, "--no-index", "--target", str(target), str(source)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture
def standin(source: Path) -> Iterator[Any]:
    """The page's stand-in, serving."""
    text = (source / "test_mycloud.py").read_text(encoding="utf-8").partition("class TestMycloud")[0]
    space: dict[str, Any] = {"__name__": "standin"}
    exec(compile(text, "test_mycloud.py", "exec"), space)
    with space["Standin"]() as place:
        yield place


def run(site: Path, home: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    path = os.pathsep.join((str(site), *filter(None, [os.environ.get("PYTHONPATH")])))
    return subprocess.run(
        [sys.executable, *command], cwd=home, capture_output=True, text=True, timeout=100, check=False,
        env=kept | {"HOME": str(home), "PYTHONPATH": path, "GPUWATCH_PROVIDERS__VASTAI__ENABLED": "false"} | env,
    )  # fmt: skip


def test_the_page_builds_a_provider_in_60_lines() -> None:
    found = files()
    assert set(found) == {"mycloud.py", "pyproject.toml", "test_mycloud.py"}
    assert len(found["mycloud.py"].splitlines()) <= LINES_MAX
    assert max(len(line) for text in found.values() for line in text.splitlines()) <= 120


@pytest.mark.slow
def test_the_installed_package_is_a_provider_like_ours(site: Path, tmp_path: Path) -> None:
    assert run(site, tmp_path, "-m", "gpuwatch", "db", "upgrade").returncode == 0
    done = run(site, tmp_path, "-m", "gpuwatch", "providers", "--json", MYCLOUD_API_KEY="demo-key")
    assert done.returncode == 0, done.stderr
    [mine] = [one for one in json.loads(done.stdout) if one["provider"] == "mycloud"]
    assert (mine["title"], mine["enabled"], mine["has_key"]) == ("Mycloud", True, True)
    plain = run(
        site, tmp_path, "-m", "gpuwatch", "config", "show", "--json", GPUWATCH_PROVIDERS__MYCLOUD__OPTIONS__ZONE="eu-2"
    )
    [zone] = [one for one in json.loads(plain.stdout)["settings"] if one["key"] == "providers.mycloud.options.zone"]
    assert (zone["value"], zone["origin"]) == ("eu-2", "env GPUWATCH_PROVIDERS__MYCLOUD__OPTIONS__ZONE")


@pytest.mark.slow
def test_its_offers_are_shown_as_its_options_say(site: Path, tmp_path: Path, standin: Any) -> None:
    offers = ("-m", "gpuwatch", "offers", "--provider", "mycloud", "--json")
    address = {"GPUWATCH_PROVIDERS__MYCLOUD__BASE_URL": standin.url, "MYCLOUD_API_KEY": standin.key}
    done = run(site, tmp_path, *offers, **address)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = found["offers"] if isinstance(found, dict) else found
    assert [row["offer_id"] for row in rows] == ["l40s-1", "h100-1", "h100-8"]
    narrowed = run(site, tmp_path, *offers, GPUWATCH_PROVIDERS__MYCLOUD__OPTIONS__ZONE="eu-2", **address)
    found = json.loads(narrowed.stdout)
    rows = found["offers"] if isinstance(found, dict) else found
    assert [row["offer_id"] for row in rows] == ["l40s-1"]


@pytest.mark.slow
def test_the_conformance_kit_passes_on_it(site: Path, source: Path, tmp_path: Path) -> None:
    done = run(
        site, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(source / "test_mycloud.py")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 15
    assert "failed" not in done.stdout


def test_the_kit_notices_a_provider_that_believes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's rows without validation: a negative price passes, and the suite reports it."""
    page = ModuleType("mycloud_page")
    exec(compile(files()["mycloud.py"], "mycloud.py", "exec"), vars(page))
    row = {"id": "a", "gpu": "H100 SXM5 80GB", "gpus": 1, "memory_gb": 80, "usd_hour": -1, "zone": "eu-1", "free": 1}
    careful = page.parse_types({"types": [row]}, NOW)
    assert (careful.offers, sum(careful.skipped.values())) == ([], 1)
    monkeypatch.setattr(page, "usd_hour", float)
    believed = build_answer(page.parse_types({"types": [row]}, NOW), Query(), "mycloud", observed_at=NOW, elapsed_s=0.0)
    assert answer_problems(believed, page.INFO) == ["'a': quoted_usd_hour is -1.0"]
