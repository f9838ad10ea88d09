"""The copy contains the kept rows, byte for byte; the input is never changed, whatever its name."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.dataset import filtering as module
from gpuwatch.dataset.audit import RemovalReason, RemovalRules
from gpuwatch.dataset.filtering import check_target, write_kept
from gpuwatch.errors import GpuwatchError, UsageError
from tests.dataset.conftest import Auditor, written
from tests.dataset.tiny_models import words

LINES = st.sampled_from(
    [
        b'{"text": "w1 w2"}',
        b'{"text":"w1 w2"} ',
        b'{"text": "w7 w9 w11 w4", "n": 1}\r',
        b'{"text": "\xc3\xa4"}',
        b"",
        b"not JSON",
        b'{"text": "\xff"}',
        b'{"text": ""}',
        b'{"other": "w1"}',
        b'{"text": "w3 w3 w250"}',
    ]
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINES, min_size=1, max_size=20), ends=st.booleans(), drop_unread=st.booleans())
def test_every_line_is_in_one_of_the_two_files_as_it_was(
    audit: Auditor,
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    ends: bool,
    drop_unread: bool,
) -> None:
    folder = tmp_path_factory.mktemp("filter")
    path, out, gone = folder / "a.jsonl", folder / "out.jsonl", folder / "gone.jsonl"
    path.write_bytes(b"\n".join([b'{"text": "w1"}', *lines]) + (b"\n" if ends else b""))
    before = path.read_bytes()
    done = audit(path, field="text")
    found = write_kept(done, out, gone, drop_unread=drop_unread)
    reasons = dict(zip(done.scanned.rows["line"].tolist(), done.reasons.tolist(), strict=True))
    all_lines = before.split(b"\n")
    all_lines = [line + b"\n" for line in all_lines[:-1]] + ([all_lines[-1]] if all_lines[-1] else [])
    stays = [
        reasons[place] == RemovalReason.KEPT if place in reasons else not drop_unread for place in range(len(all_lines))
    ]
    assert out.read_bytes() == b"".join(line for line, stay in zip(all_lines, stays, strict=True) if stay)
    assert gone.read_bytes() == b"".join(line for line, stay in zip(all_lines, stays, strict=True) if not stay)
    assert path.read_bytes() == before
    assert found.rows == done.kept
    assert sum(done.scanned.skipped.values()) + len(reasons) == len(all_lines)


def test_a_compressed_file_becomes_a_compressed_copy(audit: Auditor, tmp_path: Path) -> None:
    plain = written(tmp_path / "a.jsonl", [words([1, 2]), words([1, 2]), words([30, 4])])
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    write_kept(audit(packed, RemovalRules()), tmp_path / "out.jsonl.gz")
    write_kept(audit(plain, RemovalRules()), tmp_path / "out.jsonl")
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == (tmp_path / "out.jsonl").read_bytes()
    lines = plain.read_bytes().splitlines(keepends=True)
    assert (tmp_path / "out.jsonl").read_bytes() == lines[0] + lines[2]


def _symlink(path: Path) -> Path:
    path.with_name("link").symlink_to(path)
    return path.with_name("link")


def _hard_link(path: Path) -> Path:
    path.with_name("hard").hardlink_to(path)
    return path.with_name("hard")


def _through_a_folder(path: Path) -> Path:
    path.with_name("folder").symlink_to(path.parent)
    return path.with_name("folder") / path.name


@pytest.mark.parametrize("name", [lambda path: path, _symlink, _hard_link, _through_a_folder])
@pytest.mark.parametrize("as_removed", [False, True])
def test_the_input_is_never_a_target(
    audit: Auditor, tmp_path: Path, name: Callable[[Path], Path], as_removed: bool
) -> None:
    path = written(tmp_path / "a.jsonl", [words([1]), words([1])])
    before, target, done = path.read_bytes(), name(path), audit(path)
    targets = (tmp_path / "out", target) if as_removed else (target, None)
    with pytest.raises(UsageError, match="is the input itself"):
        write_kept(done, *targets, force=True)
    assert path.read_bytes() == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["out.jsonl.part", ".out.jsonl.part", "out.part"])
def test_no_name_of_a_half_written_copy_is_that_of_the_input(audit: Auditor, tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, [words([1]), words([1])])
    before = path.read_bytes()
    write_kept(audit(path), tmp_path / "out.jsonl")
    assert path.read_bytes() == before


def test_a_file_that_is_there_stays_unless_it_is_forced(audit: Auditor, tmp_path: Path) -> None:
    done = audit(written(tmp_path / "a.jsonl", [words([1])]))
    out = tmp_path / "out"
    out.write_text("mine")
    with pytest.raises(UsageError, match="exists; choose another file, or replace it with --force"):
        write_kept(done, out)
    assert out.read_text() == "mine"
    write_kept(done, out, force=True)
    assert out.read_bytes() == (tmp_path / "a.jsonl").read_bytes()


def test_a_file_that_comes_up_meanwhile_stays(audit: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, out = audit(written(tmp_path / "a.jsonl", [words([1])])), tmp_path / "out"
    check = check_target

    def then_somebody_writes(source: Path, target: Path, *, force: bool) -> None:
        check(source, target, force=force)
        out.write_text("theirs")

    monkeypatch.setattr(module, "check_target", then_somebody_writes)
    with pytest.raises(UsageError, match="was created in the meantime"):
        write_kept(done, out)
    assert (out.read_text(), sorted(os.listdir(tmp_path))) == ("theirs", ["a.jsonl", "a.jsonl.audit", "out"])


def test_an_input_that_was_changed_gives_no_copy(audit: Auditor, tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [words([1]), words([2])])
    done = audit(path)
    written(path, [words([1])])
    with pytest.raises(UsageError, match="has changed since it was read"):
        write_kept(done, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "a.jsonl.audit"]


def test_a_full_disk_leaves_nothing_half(audit: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = audit(written(tmp_path / "a.jsonl", [words([1]), words([2])]))

    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GpuwatchError, match=r"cannot write .*: No space left on device"):
        write_kept(done, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "a.jsonl.audit"]


def test_a_copy_is_as_readable_as_its_input(audit: Auditor, tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [words([1])])
    path.chmod(0o640)
    write_kept(audit(path), tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_lines_that_are_too_long_are_copied_in_pieces(
    audit: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr("gpuwatch.dataset.formats.file_lines.MAX_LINE_BYTES", 100)
    monkeypatch.setattr("gpuwatch.dataset.formats.file_lines._PIECE", 7)
    path = written(tmp_path / "a.jsonl", [words([1]), words(list(range(200))), words([1]), words([2])])
    lines = path.read_bytes().splitlines(keepends=True)
    if suffix:
        path = tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress(b"".join(lines)))
    done = audit(path, RemovalRules())
    found = write_kept(done, tmp_path / "out")
    assert (found.rows, found.unread, dict(done.scanned.skipped)) == (2, 1, {"longer than 16 MiB": 1})
    assert (tmp_path / "out").read_bytes() == lines[0] + lines[1] + lines[3]
    write_kept(done, tmp_path / "none", drop_unread=True)
    assert (tmp_path / "none").read_bytes() == lines[0] + lines[3]
