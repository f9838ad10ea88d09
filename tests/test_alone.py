"""A test that fails beside others and passes alone fails no run; one that fails alone, or saw two orders, does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFIGURING = """
from tests.alone import repeat_alone

def pytest_addoption(parser):
    parser.addoption("--again-alone", action="store_true")

def pytest_configure(config):
    repeat_alone(config)
"""
# the first run leaves a file
BESIDE = """
import pathlib

SEEN = pathlib.Path(__file__).with_name("seen")

def fails_first():
    first = not SEEN.exists()
    SEEN.touch()
    return first

def test_passes():
    pass
"""


def run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(BESIDE + test)
    (folder / "conftest.py").write_text(CONFIGURING)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", *options, "."]
    return subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=240, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_what_passes_alone_fails_no_run_and_is_named(tmp_path: Path, workers: str) -> None:
    done = run(tmp_path, "\ndef test_once():\n    assert not fails_first()\n", workers, "--again-alone")
    assert done.returncode == 0, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "failed beside others and passed alone: test_some.py::test_once" in done.stdout


def test_without_the_option_nothing_runs_again(tmp_path: Path) -> None:
    done = run(tmp_path, "\ndef test_once():\n    assert not fails_first()\n")
    assert done.returncode == 1, done.stdout


def test_what_fails_alone_fails_the_run_with_both_errors(tmp_path: Path) -> None:
    done = run(tmp_path, "\ndef test_twice():\n    assert fails_first() == 'never'\n", "--again-alone")
    assert done.returncode == 1, done.stdout
    assert "assert True == 'never'" in done.stdout
    assert "assert False == 'never'" in done.stdout.partition("failed alone, too:")[2]


def test_a_wrong_number_of_orders_is_not_tried_again(tmp_path: Path) -> None:
    test = "\ndef test_two():\n    creates = [1, 1] if fails_first() else [1]\n    assert ('creates', creates) == ()\n"
    done = run(tmp_path, test, "--again-alone")
    assert done.returncode == 1, done.stdout
    assert "test_some.py::test_two saw a wrong number of orders or instances" in done.stdout


def test_many_failures_are_not_tried_again(tmp_path: Path) -> None:
    test = "\nimport pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_all(n):\n    assert n > 9\n"
    done = run(tmp_path, test, "--again-alone")
    assert done.returncode == 1, done.stdout
    assert "not repeated: 4 tests failed; at most 3 run again" in done.stdout
