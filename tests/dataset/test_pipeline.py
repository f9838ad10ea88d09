"""The stages as a datatrove pipeline: several tasks find the same as one audit."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from gpuwatch.dataset.pipeline import PipelinePlan, compare_all, copy_share, read_share, readings_of, run_pipeline
from gpuwatch.errors import UsageError
from tests.dataset.conftest import written
from tests.dataset.tiny_models import words


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files; texts repeat within and between them, and one nearly repeats another."""
    folder = tmp_path / "parts"
    folder.mkdir()
    draw = random.Random(5)
    texts = [[draw.randrange(250) for _ in range(50)] for _ in range(30)]
    near = [*texts[3][:-1], (texts[3][-1] + 1) % 250]
    for number in range(3):
        mine = [
            words(text)
            for text in [*texts[number * 10 : number * 10 + 10], *texts[: number * 2], *[near] * (number == 2)]
        ]
        written(folder / f"{number}.jsonl", mine)
    (folder / "1.jsonl").write_bytes((folder / "1.jsonl").read_bytes() + b"broken\n")
    packed = folder / "2.jsonl"
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    return folder


def a_plan(source: Path, **how: object) -> PipelinePlan:
    usual = {
        "readings": readings_of(source, ("text",)),
        "wording": True,
        "executor": "local",
        "tasks": 2,
        "time": "1:00:00",
        "partition": "cpu",
    }
    return PipelinePlan(source=source, out=source.with_name("out"), **(usual | how))  # type: ignore[arg-type]


def kept(plan: PipelinePlan) -> list[bytes]:
    files = sorted((plan.out / "kept").iterdir())
    content = b"".join(
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in files
    )
    return content.splitlines()


@pytest.mark.slow
def test_datatroves_local_executor_runs_the_steps(source: Path) -> None:
    plan = a_plan(source)
    found = run_pipeline(plan, lambda _counts: True)
    assert found is not None
    assert (found["rows"], found["exact_duplicates"], found["wording_duplicates"]) == (37, 6, 1)
    assert found["skipped"] == {"not JSON": 1}
    assert len(kept(plan)) == found["kept_rows"] + 1 == 31
    assert sorted(path.name for path in (plan.out / "logs").iterdir()) == ["1-read", "2-compare", "3-copy"]
    assert run_pipeline(plan, lambda _counts: True) == found  # complete tasks are not repeated
    written(source / "9.jsonl", ["a file that arrived later"])
    with pytest.raises(UsageError, match="holds tasks of other files"):
        run_pipeline(a_plan(source), lambda _counts: True)


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_the_number_of_tasks_does_not_matter(source: Path, tasks: int) -> None:
    plan = a_plan(source, tasks=tasks)
    for step, many in ((read_share, tasks), (compare_all, 1), (copy_share, tasks)):
        for rank in range(many):
            step(None, rank, many, plan=plan)
    lines = kept(plan)
    assert len(lines) == len(set(lines)) == 31
    assert b"broken" in lines


def test_a_folder_without_rows_and_the_input_as_output_are_refused(source: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="has no file"):
        readings_of(empty, ())
    plan = PipelinePlan(
        source=source, out=source, readings={}, wording=True, executor="local", tasks=1, time="", partition=""
    )
    with pytest.raises(UsageError, match="is the input itself"):
        run_pipeline(plan, lambda _counts: True)


def test_what_is_not_read_in_a_folder_is_named(source: Path) -> None:
    (source / "more").mkdir()
    (source / "a.jsonl.zst").write_bytes(b"x")
    (source / "gone.jsonl").symlink_to(source / "nowhere")
    (source / "._0.jsonl").write_bytes(b"a Mac's own")
    plan = a_plan(source, tasks=1)
    for step in (read_share, compare_all):
        step(None, plan=plan)
    summary = json.loads((plan.out / "summary.json").read_bytes())
    assert summary["not_read"] == ["a.jsonl.zst", "gone.jsonl", "more/"]
    assert summary["files"] == 3


def test_a_file_that_cannot_be_read_stops_a_pipeline_before_its_tasks(source: Path) -> None:
    (source / "8.jsonl").write_text('[{"text": "a"}]')
    with pytest.raises(UsageError, match="one JSON array"):
        readings_of(source, ("text",))
