"""deploy/install, used as in docs/deploy.md, in a folder of the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch import __version__
from tests.checkout import ROOT

INSTALL_S = 840  # 40 s of processor time and a hundred downloads; a busy machine may take ten times as long


def _install(folder: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHON": python, "PIP_NO_COMPILE": "no"}  # pip's value for: do not compile
    return subprocess.run(
        [ROOT / "deploy/install", folder],
        env=env, capture_output=True, text=True, timeout=INSTALL_S, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_S + 60)
def test_an_install_is_one_folder_behind_one_link(tmp_path: Path) -> None:
    """With all extras of the server; a second run does nothing, and another version is installed beside it."""
    folder = tmp_path / "gpuwatch"
    (folder / "0.0.1" / "bin").mkdir(parents=True)
    (folder / "current").symlink_to("0.0.1")

    done = _install(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    link = (folder / "current").readlink()
    assert str(link).startswith(__version__)
    assert sorted(path.name for path in folder.iterdir()) == sorted(["0.0.1", "current", str(link)])

    python = folder / "current/bin/python"
    asked = [python, "-I", "-c", "import apprise, gpuwatch, psycopg; print(gpuwatch.__file__)"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=240)
    assert Path(found.stdout.strip()).resolve().is_relative_to((folder / "current").resolve())

    again = _install(folder)
    assert again.returncode == 0, again.stdout + again.stderr
    assert (folder / "current").readlink() == link


def test_an_unfit_python_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = _install(tmp_path / "gpuwatch", str(old))
    assert done.returncode == 1
    assert "Python 3.11" in done.stderr
    assert not (tmp_path / "gpuwatch").exists()
