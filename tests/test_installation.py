"""Install hints fit the way in which gpuwatch was installed."""

from __future__ import annotations

from importlib.metadata import Distribution
from pathlib import Path

import pytest

from gpuwatch.installation import DISTRIBUTION, Installation, Installer, install_hint, installation, package_hint
from tests.checkout import ROOT

REQUIRES = ["httpx>=0.28.1", "matplotlib>=3.10; extra == 'analysis'", 'pyarrow>=20 ; extra == "analysis"']


class Metadata(Distribution):
    """A wheel's metadata."""

    def read_text(self, filename: str) -> str | None:
        lines = [f"Requires-Dist: {one}" for one in REQUIRES]
        texts = {"METADATA": "\n".join([f"Name: {DISTRIBUTION}", "Version: 1.0", *lines]), "direct_url.json": None}
        return texts.get(filename)

    def locate_file(self, path: object) -> Path:
        return Path(str(path))


def installed(installer: Installer, prefix: Path = Path("/env"), source: str = DISTRIBUTION) -> Installation:
    return Installation(installer, source, prefix, "pip install", Metadata())


def test_pip_installs_the_extra_by_name() -> None:
    assert install_hint("analysis", installed(Installer.PIP)) == "pip install 'gpuwatch-daemon[analysis]'"


def test_a_checkout_is_installed_again_with_the_extra() -> None:
    found = installed(Installer.CHECKOUT, source="/home/me/gpu watch")
    assert install_hint("analysis", found) == "pip install -e '/home/me/gpu watch[analysis]'"


def test_pipx_injects_what_the_extra_adds() -> None:
    hint = install_hint("analysis", installed(Installer.PIPX))
    assert hint == "pipx inject gpuwatch-daemon 'matplotlib>=3.10' 'pyarrow>=20'"


def test_uv_installs_the_tool_again_with_what_the_extra_adds(tmp_path: Path) -> None:
    hint = install_hint("analysis", installed(Installer.UV_TOOL, tmp_path, "/home/me/gpuwatch"))
    assert hint == "uv tool install --with 'matplotlib>=3.10' --with 'pyarrow>=20' /home/me/gpuwatch"


def test_uv_keeps_what_was_added_before(tmp_path: Path) -> None:
    """uv removes every package that the new command does not name."""
    rows = '[{ name = "gpuwatch-daemon", extras = ["aws"] }, { name = "apprise", specifier = ">=1.9" }]'
    (tmp_path / "uv-receipt.toml").write_text(f"[tool]\nrequirements = {rows}\n")
    hint = package_hint("sentence-transformers", installed=installed(Installer.UV_TOOL, tmp_path))
    assert hint == "uv tool install --with 'apprise>=1.9' --with sentence-transformers 'gpuwatch-daemon[aws]'"


@pytest.mark.parametrize(
    ("installer", "hint"),
    [
        (Installer.PIP, "pip install --no-deps model"),
        (Installer.CHECKOUT, "pip install --no-deps model"),
        (Installer.UV_TOOL, "pip install --no-deps model"),
        (Installer.PIPX, "pipx runpip gpuwatch-daemon install --no-deps model"),
    ],
)
def test_a_package_without_its_dependencies_needs_pip_itself(installer: Installer, hint: str) -> None:
    assert package_hint("model", "--no-deps", installed=installed(installer)) == hint


@pytest.mark.parametrize(
    ("file", "installer"), [("pipx_metadata.json", Installer.PIPX), ("uv-receipt.toml", Installer.UV_TOOL)]
)
def test_a_tool_is_known_by_its_file(tmp_path: Path, file: str, installer: Installer) -> None:
    (tmp_path / file).write_text("")
    assert installation(tmp_path).installer is installer


def test_this_checkout_knows_that_it_is_one() -> None:
    found = installation()
    assert (found.installer, found.source) == (Installer.CHECKOUT, str(ROOT))
    assert install_hint("aws").endswith(f" -e '{ROOT}[aws]'")


def test_no_other_place_spells_an_install_command() -> None:
    """Each would be wrong for most ways of installing gpuwatch."""
    files = [path for path in (ROOT / "gpuwatch").rglob("*.py") if path.name != "installation.py"]
    assert [path.name for path in files if "pip install" in path.read_text()] == []
