"""Large files: equal texts and similar wording are found in all rows; a model reads a sample."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset import cheap_stages
from gpuwatch.dataset.audit import Audit, AuditModels, AuditPlan, RemovalReason, RemovalRules, audit_in_stages
from gpuwatch.dataset.audit_report import report_of
from gpuwatch.dataset.cheap_stages import read_whole, wording_duplicates
from gpuwatch.dataset.filtering import write_kept
from gpuwatch.dataset.saving import TrainingWork, training_saving
from gpuwatch.dataset.scan import NO_ROW, detect_fields, minhashes, similar_wording, wording_similarity
from gpuwatch.dataset.text_rows import FieldSelection
from gpuwatch.dataset.work_folder import open_work_folder
from tests.dataset.conftest import written
from tests.dataset.tiny_models import words

READING = FieldSelection(fields=("text",), guessed=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """500 texts, 100 of them twice, 50 with one other word, and two broken lines."""
    draw = random.Random(4)
    texts = [[draw.randrange(250) for _ in range(60)] for _ in range(500)]
    near = [[*text[:-1], (text[-1] + 1) % 250] for text in texts[:50]]
    path = written(tmp_path / "a.jsonl", [words(text) for text in [*texts, *texts[100:200], *near]])
    path.write_bytes(b"broken\n" + path.read_bytes() + b"{}\n")
    return path


def staged(path: Path, models: AuditModels, sample: int | None, threads: int = 1) -> Audit:
    rules = RemovalRules(near=0.999)
    plan = AuditPlan(reading=detect_fields(path, ()), rules=rules, models=models, sample=sample, threads=threads)
    with open_work_folder(path.with_name("work")) as folder:
        return audit_in_stages(path, plan, folder, lambda _what, _done, _all: None)


def test_all_rows_are_compared_and_a_sample_is_read(data: Path, tiny: AuditModels) -> None:
    done = staged(data, tiny, 100)
    reasons = Counter(done.reasons.tolist())
    assert reasons[RemovalReason.EXACT] == 100
    assert reasons[RemovalReason.WORDING] == 50
    assert len(done.read.scanned.rows) == len(done.read.clusters.labels) == 100
    assert dict(done.scanned.skipped) == {"not JSON": 1, "no text in text": 1}
    report = report_of(done, training_saving(100, 10, TrainingWork(gpu_hours=1), None, None))
    assert report["sampled"] == {"rows": 100, "of": 650, "share_error_95": 0.098}
    assert (report["samples"], report["rows"]["rows"], report["lines"]) == (650, 650, 652)
    shown = json.loads(data.read_bytes().splitlines()[report["clusters"]["largest"][0]["middle"]["line"] - 1])
    assert shown["text"].startswith(report["clusters"]["largest"][0]["middle"]["text"][:40])
    kept = write_kept(done, data.with_name("kept.jsonl"))
    assert (kept.rows, kept.unread) == (done.kept, 2)
    assert done.kept <= 500


def test_a_file_that_the_model_can_read_is_read_whole(data: Path, tiny: AuditModels) -> None:
    assert staged(data, tiny, None).sample is None
    assert staged(data, tiny, 5_000).sample is None
    assert staged(data, tiny, 650).sample is None


def test_processes_find_what_one_finds(data: Path, tmp_path: Path) -> None:
    found = []
    for threads in (1, 2):
        with open_work_folder(tmp_path / f"work{threads}") as folder:
            whole = read_whole(data, READING, folder, threads, lambda _what, _done, _all: None, wording=True)
            found.append((np.array(whole.rows), np.array(whole.sketches), whole.exact, wording_duplicates(whole)))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


def test_a_pass_goes_on_where_it_was_stopped(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cheap_stages, "_BLOCK_LINES", 16)
    calls = [0]

    class Stop(Exception):
        pass

    def stops(what: str, _done: int, _all: int) -> None:
        calls[0] += 1
        if calls[0] in (5, 60):
            raise Stop

    found = None
    with open_work_folder(tmp_path / "work") as folder:
        for _ in range(3):
            try:
                found = read_whole(data, READING, folder, 1, stops, wording=True)
            except Stop:
                continue
        assert found is not None
        after = np.array(found.rows), np.array(found.sketches)
        read, calls[0] = calls[0], -(10**6)
        read_whole(data, READING, folder, 1, stops, wording=True)
        assert calls[0] == -(10**6)  # nothing is read again
    assert read < 41 + 35 + 3  # no block twice
    with open_work_folder(tmp_path / "fresh") as folder:
        fresh = read_whole(data, READING, folder, 1, lambda _what, _done, _all: None, wording=True)
        assert np.array_equal(after[0], fresh.rows)
        assert np.array_equal(after[1], fresh.sketches)


def test_the_cheap_stages_parse_each_row_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts instead of times: rows and sketches are created in blocks."""
    calls: Counter[str] = Counter()
    for name in ("parse_content", "minhashes"):
        real = getattr(cheap_stages, name)
        monkeypatch.setattr(cheap_stages, name, lambda given, name=name, real=real: calls.update([name]) or real(given))
    with open_work_folder(tmp_path / "work") as folder:
        read_whole(data, READING, folder, 1, lambda _what, _done, _all: None, wording=True)
    assert calls == {"parse_content": 652 + 550, "minhashes": 1}


@given(edits=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 59)), min_size=2, max_size=12))
def test_what_goes_is_worded_as_a_row_that_stays(edits: list[tuple[int, int]]) -> None:
    texts = []
    for base, place in edits:
        text = [f"w{base}x{number}" for number in range(60)]
        text[place] = "other"
        texts.append(" ".join(text))
    sketches = minhashes(texts)
    near = similar_wording(sketches, np.full(len(texts), NO_ROW), np.zeros(len(texts), np.uint64))
    for row in np.flatnonzero(near != NO_ROW):
        assert near[row] < row
        assert near[near[row]] == NO_ROW
        assert wording_similarity(sketches[row], sketches[near[row]]) >= 0.8
