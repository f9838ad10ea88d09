"""The signal that ended a worker stands below the summary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DYING = """
import os, signal

def test_dies():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_lives():
    pass
"""

CONFIGURING = """
from tests.worker_deaths import tell_of_deaths

def pytest_configure(config):
    tell_of_deaths(config)
"""


def test_the_summary_names_the_signal_that_ended_a_worker(tmp_path: Path) -> None:
    (tmp_path / "test_dying.py").write_text(DYING)
    (tmp_path / "conftest.py").write_text(CONFIGURING)
    argv = [sys.executable, "-m", "pytest", "-q", "-n1", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "."]
    done = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    assert "worker gw0 died: SIGSEGV; " in done.stdout, done.stdout
