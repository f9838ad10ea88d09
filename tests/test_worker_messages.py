"""A worker reports everything but quick fixtures that passed without output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker_messages import NOTABLE_S, is_read


def _report(**given: Any) -> dict[str, Any]:
    return {"data": {"outcome": "passed", "when": "setup", "sections": [], "duration": 0.0} | given}


def test_only_quick_silent_fixtures_that_passed_are_left_out() -> None:
    assert not is_read("testreport", _report())
    assert not is_read("testreport", _report(when="teardown"))
    assert is_read("testreport", _report(when="call"))
    assert is_read("testreport", _report(outcome="failed"))
    assert is_read("testreport", _report(outcome="skipped"))
    assert is_read("testreport", _report(sections=[("Captured stdout setup", "text")]))
    assert is_read("testreport", _report(duration=NOTABLE_S))


@pytest.mark.parametrize("name", ["workerready", "collectionfinish", "runtest_protocol_complete", "workerfinished"])
def test_what_xdist_waits_for_is_sent(name: str) -> None:
    assert is_read(name, {})


_TESTS = """
import pytest
@pytest.fixture
def unmade():
    yield
    raise RuntimeError
@pytest.fixture
def unfit():
    raise RuntimeError
def test_passes(): ...
def test_fails(): assert 0
def test_unmade(unmade): ...
def test_unfit(unfit): ...
@pytest.mark.skip
def test_skipped(): ...
"""


def test_nothing_that_went_wrong_is_lost(tmp_path: Path) -> None:
    (tmp_path / "test_all_ends.py").write_text(_TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests.worker_messages import send_less\n"
        "def pytest_collection_finish(session):\n"
        "    if hasattr(session.config, 'workerinput'):\n"
        "        send_less(session.config.pluginmanager.get_plugins())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:randomly", "--rootdir", tmp_path, tmp_path],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert "1 failed, 2 passed, 1 skipped, 2 errors" in done.stdout, done.stdout + done.stderr
