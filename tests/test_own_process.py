"""With workers, the tests of some places run in a process of their own; their results are reported like all others."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.checkout import ROOT
from tests.own_process import PLACES, plugin_for

_CONFTEST = """
import os, pytest
from tests.own_process import plugin_for
def pytest_configure(config):
    plugin = plugin_for(config, [("b",), ("test_dies.py",)])
    if plugin:
        config.pluginmanager.register(plugin)
@pytest.fixture(scope="session")
def session_fixture():
    yield os.getpid()
    with open("torn-down.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
"""
_IN_ITS_PLACE = """
import os, pytest
@pytest.fixture(scope="module")
def module_fixture():
    return os.getpid()
@pytest.fixture
def unmade():
    yield
    raise RuntimeError("cannot tear down")
def test_first(module_fixture, session_fixture):
    with open("in-its-place.txt", "a") as file:
        file.write(f"{os.getpid()} {module_fixture} {session_fixture}\\n")
def test_fails():
    assert "what it compares" == "and shows"
def test_unmade(unmade): ...
@pytest.mark.skip
def test_skipped(): ...
def test_last(module_fixture, session_fixture):
    with open("in-its-place.txt", "a") as file:
        file.write(f"{os.getpid()} {module_fixture} {session_fixture}\\n")
"""
_PLAIN = """
import os
def test_plain(session_fixture):
    with open("plain.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
"""


def _run(folder: Path, **files: str) -> str:
    for name, text in {"conftest": _CONFTEST, **files}.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n1", "-p", "no:randomly", "--rootdir", folder, folder],
        capture_output=True, text=True, timeout=100, check=False, cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_what_its_tests_came_to_is_reported_from_one_other_process(tmp_path: Path) -> None:
    text = _run(tmp_path, **{"a/test_plain": _PLAIN, "b/test_in_its_place": _IN_ITS_PLACE, "c/test_plain_too": _PLAIN})
    assert "1 failed, 5 passed, 1 skipped, 1 error" in text, text
    assert "AssertionError: assert 'what it compares' == 'and shows'" in text
    assert "RuntimeError: cannot tear down" in text
    [worker] = set((tmp_path / "plain.txt").read_text().split())
    [child] = set((tmp_path / "in-its-place.txt").read_text().split())
    assert child != worker
    assert (tmp_path / "torn-down.txt").read_text().split() == [child, worker]


def test_every_place_exists_and_has_tests() -> None:
    """Otherwise one that was renamed would fill the workers again."""
    assert [place for row in PLACES for place in row if not _has_tests(ROOT, *place.partition("::"))] == []


def _has_tests(root: Path, path: str, _: str, cls: str) -> bool:
    if cls:  # made by the contract suites, one for each provider
        return hasattr(import_module(path.removesuffix(".py").replace("/", ".")), cls)
    return any([*(root / path).glob("test_*.py"), *root.glob(path)])


def test_without_workers_nothing_changes() -> None:
    assert plugin_for(cast("pytest.Config", SimpleNamespace())) is None


_DIES = """
import os, pytest, time
def test_before(): ...
def test_dies():
    os.abort()
def test_after(): ...
@pytest.mark.timeout(1)
def test_hangs():
    time.sleep(300)
def test_after_it(): ...
"""


def test_a_process_that_dies_or_hangs_fails_one_test(tmp_path: Path) -> None:
    text = _run(tmp_path, test_dies=_DIES)
    assert "2 failed, 3 passed" in text, text
    assert "its process ended with -6" in text
    assert "Fatal Python error: Aborted" in text
    assert "Timeout" in text
