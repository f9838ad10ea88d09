"""`gpuwatch providers emulator` and other commands that listen: what cannot be listened at is one line."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def ran(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("words", [("gpuwatch", "emulator"), ("gpuwatch.emulator",)])
def test_a_port_in_use_is_one_line(words: tuple[str, ...], used_port: int, tmp_path: Path) -> None:
    done = ran(*words, "--port", str(used_port), folder=tmp_path)
    line = f"gpuwatch: cannot listen at 127.0.0.1:{used_port}: Address already in use; set another --port\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def test_what_is_no_port_is_one_line(tmp_path: Path) -> None:
    done = ran("gpuwatch", "emulator", "--port", "70000", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("gpuwatch: cannot listen at 127.0.0.1:70000: ")
    assert done.stderr.count("\n") == 1


def test_the_page_at_a_used_port_is_one_line(used_port: int, tmp_path: Path) -> None:
    done = ran("gpuwatch", "web", "--listen", f"127.0.0.1:{used_port}", folder=tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[-1] == f"gpuwatch: web: cannot listen at 127.0.0.1:{used_port}: Address already in use"
    )
    assert "Traceback" not in done.stderr
