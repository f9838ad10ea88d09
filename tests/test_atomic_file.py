"""A file that is written is seen complete or not at all, and nothing else stays in its folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpuwatch.atomic_file import atomic_file


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with atomic_file(target) as part:
        part.write_text("new")
        assert (part.parent, target.read_text()) == (tmp_path, "old")
    assert (target.read_text(), os.listdir(tmp_path)) == ("new", ["a.txt"])


@pytest.mark.parametrize("fault", [OSError("no space left"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file_and_no_part(tmp_path: Path, fault: BaseException) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def interrupted() -> None:
        with atomic_file(target) as part:
            part.write_text("ne")
            raise fault

    with pytest.raises(type(fault)):
        interrupted()
    assert (target.read_text(), os.listdir(tmp_path)) == ("old", ["a.txt"])


def test_a_file_that_appears_in_the_meantime_stays_if_it_may_not_be_replaced(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"

    def overtaken() -> None:
        with atomic_file(target, may_replace=False) as part:
            part.write_text("mine")
            target.write_text("somebody else's")

    with pytest.raises(FileExistsError):
        overtaken()
    assert (target.read_text(), os.listdir(tmp_path)) == ("somebody else's", ["a.txt"])


def test_a_new_file_that_may_replace_none_is_complete_and_alone(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a.txt", may_replace=False, is_durable=True) as part:
        part.write_text("mine")
    assert ((tmp_path / "a.txt").read_text(), os.listdir(tmp_path)) == ("mine", ["a.txt"])


def test_nobody_else_reads_a_private_file_even_while_it_is_written(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "secret", mode=0o600) as part:
        assert stat.S_IMODE(part.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with atomic_file(target) as first, atomic_file(target) as second:
        first.write_text("first")
        second.write_text("second")
    assert (target.read_text(), os.listdir(tmp_path)) == ("first", ["a.txt"]), "the last one to finish wins"


def test_a_long_name_is_no_obstacle(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250)
    with atomic_file(target) as part:
        part.write_text("x")
    assert target.read_text() == "x"
