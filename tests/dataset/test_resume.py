"""A killed audit continues where it stopped, and finds the same as an undisturbed one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpuwatch.dataset import scan as module
from gpuwatch.dataset.audit import AuditModels
from gpuwatch.dataset.embedding import Embedding
from gpuwatch.dataset.scan import VECTOR_TYPE, KnownTexts
from gpuwatch.dataset.work_folder import open_work_folder
from gpuwatch.errors import GpuwatchError, UsageError
from tests.checkout import ROOT
from tests.dataset.conftest import Auditor, written
from tests.dataset.tiny_models import words

# dies of kill -9 at the n-th call of one of these, before or after it has done its work
CHILD = """
import os, signal, sys
from gpuwatch.dataset import scan, work_folder
from gpuwatch.cli import run
place, number, path, model = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
scan._BLOCK_ROWS = 16
owner = work_folder.AppendedTable if place.startswith("append") else work_folder.WorkFolder
name, calls, real = place.split("-")[0], [0], None
real = getattr(owner, name)
def dying(self, *args):
    calls[0] += 1
    if calls[0] == number and place.endswith("before"):
        os.kill(os.getpid(), signal.SIGKILL)
    found = real(self, *args)
    if calls[0] == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
setattr(owner, name, dying)
sys.exit(run(["dataset", "audit", path, "--model", model, "--threads", "1"]))
"""


class Counting:
    """The model, which counts the texts that it reads."""

    def __init__(self, embedder: object) -> None:
        self._embedder, self.texts = embedder, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._embedder, name)

    def vectors(self, texts: list[str]) -> Embedding:
        self.texts += len(texts)
        return self._embedder.vectors(texts)  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_BLOCK_ROWS", 16)
    draw = random.Random(3)
    texts = [words([draw.randrange(40) for _ in range(draw.randint(1, 30))]) for _ in range(100)]
    path = written(tmp_path / "a.jsonl", texts + texts[:7])
    path.write_bytes(path.read_bytes().replace(b"\n", b"\nnot JSON\n", 60))
    return path


@pytest.mark.parametrize("place", ["append-before", "append-after", "save_state-before", "save_state-after"])
@pytest.mark.parametrize("number", [1, 5])
def test_after_kill_9_it_goes_on(data: Path, tiny_folder: Path, audit: Auditor, place: str, number: int) -> None:
    whole = audit(data.rename(data.with_name("whole.jsonl")))
    data.write_bytes(data.with_name("whole.jsonl").read_bytes())
    argv = [sys.executable, "-c", CHILD, place, str(number), str(data), str(tiny_folder)]
    died = subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=100, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    state = data.with_name("a.jsonl.audit") / "state.json"
    known = json.loads(state.read_bytes())["scan"]["rows"] if state.exists() else 0
    assert known < len(whole.scanned.rows)
    after = audit(data)
    assert (after.scanned.lines, dict(after.scanned.skipped)) == (whole.scanned.lines, dict(whole.scanned.skipped))
    for name in ("rows", "vectors", "sketches"):
        assert np.array_equal(getattr(after.scanned, name), getattr(whole.scanned, name)), name
    for name in ("exact", "near", "reasons"):
        assert np.array_equal(getattr(after, name), getattr(whole, name)), name


def test_what_was_read_is_not_read_again(data: Path, audit: Auditor, tiny: AuditModels) -> None:
    counting = Counting(tiny.embedder)
    models = AuditModels(embedder=counting, counter=tiny.counter)
    audit(data, models=models)
    read, counting.texts = counting.texts, 0
    audit(data, models=models)
    assert (read, counting.texts) == (100, 0)  # the seven duplicates were read once
    data.write_bytes(data.read_bytes() + b'{"text": "w1 w2"}\n')  # another file: all is read
    audit(data, models=models)
    assert counting.texts == 101


def test_after_a_break_texts_are_still_known(data: Path, audit: Auditor, tiny: AuditModels) -> None:
    rows = audit(data).scanned.rows
    counting = Counting(tiny.embedder)
    with open_work_folder(data.with_name("a.jsonl.audit")) as folder:
        before = KnownTexts(folder, tiny.embedder.dimensions, 20)  # as after a break at row 20
        digests = [b"".join(rows[name][place].tobytes() for name in ("hash", "hash_rest")) for place in (3, 19, 20)]
        found, _, _ = before.vectors(["", "", "w1"], digests, counting)
        assert np.array_equal(found[:2], folder.table("vectors", VECTOR_TYPE, tiny.embedder.dimensions, 20)[[3, 19]])
    assert counting.texts == 1


def test_a_text_that_is_forgotten_is_read_again_and_is_the_same(
    data: Path, audit: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = audit(data)
    monkeypatch.setattr("gpuwatch.dataset.scan._KNOWN_TEXTS", 3)
    other = audit(data.rename(data.with_name("b.jsonl")))
    assert np.abs(one.scanned.vectors - other.scanned.vectors).max() < 1e-6
    assert np.array_equal(one.scanned.rows, other.scanned.rows)
    assert np.array_equal(one.exact, other.exact)


def test_another_field_or_model_begins_anew(data: Path, audit: Auditor, tmp_path: Path) -> None:
    rows = [{"text": "w1", "title": "w2 w3"}, {"text": "w1", "title": "w4"}]
    path = tmp_path / "b.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert [audit(path, field=field).kept for field in ("text", "title", "text")] == [1, 2, 1]


def test_a_state_that_cannot_be_read_is_none(data: Path, audit: Auditor) -> None:
    first = audit(data)
    (data.with_name("a.jsonl.audit") / "state.json").write_text("{")
    assert np.array_equal(audit(data).reasons, first.reasons)


def test_a_file_of_the_folder_that_was_cut_is_reported(data: Path, audit: Auditor) -> None:
    audit(data)
    os.truncate(data.with_name("a.jsonl.audit") / "vectors", 10)
    with pytest.raises(GpuwatchError, match="shorter than before; start over with --anew"):
        audit(data)


def test_one_audit_at_a_time_in_a_folder_and_in_one_of_its_own(tmp_path: Path) -> None:
    with (
        open_work_folder(tmp_path / "work"),
        pytest.raises(GpuwatchError, match="another audit is using"),
        open_work_folder(tmp_path / "work"),
    ):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="contains other files"), open_work_folder(tmp_path / "mine"):
        pass


def test_a_file_that_grows_while_it_is_read_is_reported(
    data: Path, audit: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module._scan_block

    def and_somebody_writes(*args: object) -> object:
        with data.open("ab") as file:
            file.write(b"{}\n")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_scan_block", and_somebody_writes)
    with pytest.raises(UsageError, match="changed during the run"):
        audit(data)
