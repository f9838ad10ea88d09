"""`gpuwatch demo --jobs`: from the queue to fetched results, or one line that names what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.app.setup.demo_jobs import missing_for_jobs
from tests.process.daemon_child import ROOT


def _demo(folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gpuwatch", "demo", "--jobs"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.slow
@pytest.mark.skipif(missing_for_jobs() is not None, reason="needs Debian's openssh-server")
def test_a_job_goes_from_the_queue_to_its_results(tmp_path: Path) -> None:
    done = _demo(tmp_path, os.environ["PATH"])
    assert done.returncode == 0, done.stdout + done.stderr
    shown = " ".join(done.stdout.split())  # its lines are wrapped
    assert "loss.json" in shown
    assert "the marketplace has 0 instances" in shown
    assert "create requests received by the marketplace: 1" in shown


def test_without_ssh_it_says_so_in_one_line(tmp_path: Path) -> None:
    done = _demo(tmp_path, str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "openssh-server" in done.stdout
    assert done.stderr == ""
