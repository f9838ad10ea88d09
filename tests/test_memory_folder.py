"""Temporary files of the tests are in memory only where it has room, and do not stay there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import memory_folder
from tests.memory_folder import is_usable, remove_left_over

_USES = """
import os, subprocess, sys, tempfile
from pathlib import Path
from tests import memory_folder
memory_folder.ROOM_BYTES, memory_folder.SHARED_MEMORY = 1, Path(sys.argv[1])
memory_folder.use_memory()
folder = tempfile.gettempdir()
Path(folder, "a").touch()
child = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
if not os.fork():
    sys.exit()
os.wait()
print(folder, os.path.exists(folder), subprocess.run(child, capture_output=True, text=True).stdout)
"""


def _used(memory: Path, **env: str) -> list[str]:
    others = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    command = [sys.executable, "-c", _USES, str(memory)]
    ran = subprocess.run(command, env=others | env, capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_a_process_and_its_children_use_one_folder_that_is_removed_at_the_end(tmp_path: Path) -> None:
    folder, exists, of_child = _used(tmp_path)
    assert Path(folder).parent == tmp_path
    assert (exists, of_child) == ("True", folder)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_somebody_chose_is_used(tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    assert _used(tmp_path, TMPDIR=str(chosen)) == [str(chosen), "True", str(chosen)]
    assert chosen.exists()


def test_without_room_it_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_folder, "ROOM_BYTES", 1)
    assert is_usable(tmp_path)
    assert not is_usable(tmp_path / "missing")
    monkeypatch.setattr(memory_folder, "ROOM_BYTES", 1 << 60)
    assert not is_usable(tmp_path)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory_folder, "CONTAINER_LIMIT", limit)
    monkeypatch.setattr(memory_folder, "ROOM_BYTES", 1 << 20)
    for text, usable in (("max\n", True), ("2097152\n", True), ("4096\n", False)):
        limit.write_text(text)
        assert is_usable(tmp_path) is usable


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    ended, own = tmp_path / "gpuwatch-tests-99999999", tmp_path / f"gpuwatch-tests-{os.getpid()}"
    ended.mkdir()
    own.mkdir()
    remove_left_over(tmp_path)
    assert list(tmp_path.iterdir()) == [own]
