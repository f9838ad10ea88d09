"""Temporary files of the tests are in memory only where it has room."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests import memory_folder
from tests.memory_folder import is_usable, use_memory


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that counts as usable, whatever this machine has."""
    monkeypatch.setattr(memory_folder, "ROOM_BYTES", 1)
    monkeypatch.setattr(memory_folder, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    return tmp_path


def test_it_is_used_by_this_process_and_its_children(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    use_memory()
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(room)


def test_a_folder_that_somebody_chose_stays(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")
    use_memory()
    assert os.environ["TMPDIR"] == "/tmp"


def test_without_room_it_is_not_used(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_usable(room)
    monkeypatch.setattr(memory_folder, "ROOM_BYTES", 1 << 60)
    assert not is_usable(room)
    assert not is_usable(room / "missing")
