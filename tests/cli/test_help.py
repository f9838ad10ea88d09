"""`gpuwatch --help`: prepared beforehand, and still what the commands say of themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuwatch

PREPARED = Path(gpuwatch.__file__).parent / "cli" / "help.txt"


def _help(word: str, **env: str) -> str:
    clean = {"PATH": os.defpath, "HOME": "/nonexistent", **env}
    command = [sys.executable, "-m", "gpuwatch", word]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_prepared_help_is_what_the_commands_say() -> None:
    """Mend: COLUMNS=80 python -c 'from gpuwatch.cli import run; run(["--help"])' > gpuwatch/cli/help.txt"""
    asking = [sys.executable, "-c", "from gpuwatch.cli import run; run(['--help'])"]
    for columns in ("80", "81", "200"):
        env = {"PATH": os.defpath, "COLUMNS": columns}
        said = subprocess.run(asking, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
        assert said == PREPARED.read_text("ascii")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_without_a_terminal_is_the_prepared_text(word: str) -> None:
    assert _help(word) == PREPARED.read_text("ascii")


def test_a_narrow_terminal_gets_narrow_help() -> None:
    assert max(map(len, _help("--help", COLUMNS="60").splitlines())) <= 60


def test_a_reader_that_has_had_enough_is_no_fault(tmp_path: Path) -> None:
    """`gpuwatch config schema | head`: the other end of the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        command = [sys.executable, "-m", "gpuwatch", "config", "schema"]
        ran = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, cwd=tmp_path, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
