"""`gpuwatch providers new` for an author: only unfinished parts fail."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.app.setup.new_provider import package_files, write_package
from gpuwatch.errors import UsageError
from gpuwatch.installation import DISTRIBUTION
from tests.checkout import ROOT


def run(home: Path, *command: str, path: str = "") -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    places = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *command], cwd=home, capture_output=True, text=True, timeout=110, check=False,
        env=kept | {"HOME": str(home), "PYTHONPATH": places},
    )  # fmt: skip


def outcome(folder: Path, site: Path) -> tuple[list[str], int]:
    """Return the names of the failed tests, and how many passed."""
    done = run(
        folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "error", ".", path=str(site)
    )
    [passed] = re.findall(r"(\d+) passed", done.stdout) or ["0"]
    return re.findall(r"(?m)^(?:FAILED|ERROR) \S+::(\w+)", done.stdout), int(passed)


@pytest.mark.slow
def test_the_kit_is_red_only_where_the_author_must_write(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "gpuwatch", "new-provider", "sky_cloud", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    folder, site = tmp_path / made["folder"], tmp_path / "site"
    pip = ("-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-deps", "--no-build-isolation")
    done = run(tmp_path, *pip, "--no-index", "--target", str(site), str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    red, green = outcome(folder, site)
    assert red == ["test_is_written"] * made["to_write"]
    assert made["to_write"] > 10
    assert green > 40
    for file in folder.glob("*.py"):
        file.write_text(re.sub(r"\bWRITE: ", "", file.read_text(encoding="utf-8")), encoding="utf-8")
    (site / "sky_cloud.py").write_text((folder / "sky_cloud.py").read_text(encoding="utf-8"), encoding="utf-8")
    assert outcome(folder, site) == ([], green)


def test_the_files_are_python_and_fit_on_lines() -> None:
    for name, text in package_files("mycloud").items():
        assert not re.search(r"@[A-Z]+@", text), name
        assert max(map(len, text.splitlines())) <= 120, name
        if name.endswith(".py"):
            compile(text, name, "exec")


def test_it_depends_on_gpuwatch_by_the_name_of_its_distribution() -> None:
    """On the public index, `gpuwatch` is another project."""
    page = (ROOT / "docs" / "write-a-provider.md").read_text(encoding="utf-8")
    for text in (package_files("mycloud")["pyproject.toml"], page):
        assert f'dependencies = ["{DISTRIBUTION}"]' in text


def test_the_module_has_types_and_names_of_its_own_as_a_built_in_provider_needs() -> None:
    module = ast.parse(package_files("sky_cloud")["sky_cloud.py"])
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    assert all(function.returns is not None for function in functions)
    arguments = [arg for function in functions for arg in function.args.args if arg.arg != "self"]
    assert all(arg.annotation is not None for arg in arguments)
    assert all("SkyCloud" in node.name for node in module.body if isinstance(node, ast.ClassDef))


@pytest.mark.parametrize("name", ["", "My", "1a", "a-b", "vastai", "json", "x" * 50, "../x"])
def test_a_name_that_cannot_be_one_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        write_package(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="has files"):
        write_package("mycloud", tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]
