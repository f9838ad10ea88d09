"""The stages of `dataset` on more than one machine, as a datatrove pipeline: local, Slurm or Ray.

Three steps: each task reads its share of the files (equal texts, wording); one task compares all rows; each task
writes its share of the copies. datatrove starts the tasks, does not repeat complete ones, and keeps their logs. A model
reads a sample on a single machine: run `dataset audit` on the copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpuwatch.dataset.cheap_stages import exact_records, sketch_lines
from gpuwatch.dataset.duplicates import exact_duplicates
from gpuwatch.dataset.formats.file_lines import open_bytes
from gpuwatch.dataset.formats.row_files import ENDINGS_TEXT, format_of, is_row_file, read_lines
from gpuwatch.dataset.onnx_models import import_extra
from gpuwatch.dataset.scan import (
    MINHASH_SIZE,
    MINHASH_TYPE,
    NO_ROW,
    ROW_TYPE,
    NoUsableRows,
    detect_fields,
    similar_wording,
    with_shared_text,
)
from gpuwatch.dataset.text_rows import FieldSelection
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint

_BLOCK_LINES = 8_192
_SUMMARY = "summary.json"
_WORK = "work.json"


class PipelinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The files to read, and how the tasks run.

    Attributes:
        readings: file name → fields that contain text; a file without any has no entry.
        wording: whether to remove rows with nearly the same wording, too.
        time: time limit of a Slurm task, hh:mm:ss.
        partition: Slurm partition.
    """

    source: Path
    out: Path
    readings: dict[str, FieldSelection]
    wording: bool
    executor: str
    tasks: int
    time: str
    partition: str


def input_files(source: Path) -> list[Path]:
    """The files of a folder, by name. Raises UsageError: there are none."""
    files = sorted(path for path in source.iterdir() if is_row_file(path.name) and _is_shown_file(path))
    if not files:
        raise UsageError(f"{source} has no file that ends in {ENDINGS_TEXT}")
    return files


def _is_shown_file(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def not_read(source: Path) -> list[str]:
    """What else is in a folder: files of other names, folders, links that lead nowhere. Hidden ones are left out."""
    read = set(input_files(source))
    others = sorted(path for path in source.iterdir() if path not in read and not path.name.startswith("."))
    return [f"{path.name}/" if path.is_dir() else path.name for path in others]


def readings_of(source: Path, field_names: tuple[str, ...]) -> dict[str, FieldSelection]:
    """The fields that contain the text of each file of a folder: the files may differ in shape.

    Raises:
        NoUsableRows: no file has a row with text.
        UsageError: no file has these fields, or a file cannot be read.
    """
    found: list[tuple[Path, FieldSelection]] = []
    faults: list[NoUsableRows | UsageError] = []
    for path in input_files(source):
        format_of(path)  # what cannot be read stops all of it before a task begins
        try:
            found.append((path, detect_fields(path, field_names)))
        except (NoUsableRows, UsageError) as fault:
            faults.append(fault)
    if not found:
        raise faults[0]
    shared = with_shared_text(found)
    return {path.name: reading for (path, _), reading in zip(found, shared, strict=True)}


def run_pipeline(plan: PipelinePlan, may_copy: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """Run the steps, or submit them to Slurm; returns the findings, or with Slurm how to see them.

    Args:
        may_copy: asked with the findings before the copies are written, unless Slurm runs the steps; no: returns None.

    Raises:
        UsageError: datatrove is not installed, the folders cannot be used, or OUT holds tasks of other files.
    """
    input_files(plan.source)
    if plan.out.exists() and plan.out.samefile(plan.source):
        raise UsageError(f"{plan.out} is the input itself; choose another folder")
    plan.out.mkdir(parents=True, exist_ok=True)
    _refuse_other_work(plan)
    read = _executor(plan, partial(read_share, plan=plan), plan.tasks, "1-read", None)
    compare = _executor(plan, partial(compare_all, plan=plan), 1, "2-compare", read)
    copy = _executor(plan, partial(copy_share, plan=plan), plan.tasks, "3-copy", compare)
    summary, where = plan.out / _SUMMARY, {"executor": plan.executor, "summary": str(plan.out / _SUMMARY)}
    if plan.executor != "slurm":
        compare.run()
        if summary.exists() and not may_copy(msgspec.json.decode(summary.read_bytes())):
            return None
    copy.run()
    if plan.executor == "slurm" or not summary.exists():
        return dict(where)
    summary_json: dict[str, Any] = msgspec.json.decode(summary.read_bytes())
    return summary_json | where


def _refuse_other_work(plan: PipelinePlan) -> None:
    """Complete tasks are not repeated: those of other files, or of another number of tasks, would leave files out.

    Raises:
        UsageError: OUT holds such tasks.
    """
    stats = [(path.name, path.stat()) for path in input_files(plan.source)]
    work = msgspec.json.encode(
        {
            "files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats],
            "fields": {name: reading.key for name, reading in sorted(plan.readings.items())},
            "tasks": plan.tasks,
            "wording": plan.wording,
        }
    )
    known = plan.out / _WORK
    if known.exists() and known.read_bytes() != work:
        raise UsageError(f"{plan.out} holds tasks of other files, fields or --tasks; choose another folder")
    known.write_bytes(work)


def _executor(plan: PipelinePlan, step: Any, tasks: int, name: str, depends: Any) -> Any:
    try:
        library = import_extra("datatrove.executor")
    except UsageError as error:
        raise UsageError(f"datatrove is not installed: {install_hint('datatrove')}") from error
    common = {"pipeline": [step], "tasks": tasks, "logging_dir": str(plan.out / "logs" / name), "depends": depends}
    if plan.executor == "slurm":
        slurm = {"time": plan.time, "partition": plan.partition, "job_name": f"gpuwatch-{name}"}
        return library.SlurmPipelineExecutor(**common, **slurm)
    if plan.executor == "ray":
        return library.RayPipelineExecutor(**common)
    return library.LocalPipelineExecutor(**common, workers=tasks, start_method="spawn")


def read_share(_data: Any, rank: int = 0, world_size: int = 1, *, plan: PipelinePlan) -> None:
    """Step 1: write records and sketches of this task's files."""
    folder = plan.out / "stages"
    folder.mkdir(parents=True, exist_ok=True)
    for path in input_files(plan.source)[rank::world_size]:
        rows, sketches, skipped = _stages_of(path, plan)
        np.savez(folder / f"{path.name}.npz", rows=rows, sketches=sketches)
        (folder / f"{path.name}.skipped").write_bytes(msgspec.json.encode(skipped))


def _stages_of(path: Path, plan: PipelinePlan) -> tuple[Any, Any, Counter[str]]:
    rows, sketches, skipped = [np.empty(0, ROW_TYPE)], [np.empty((0, MINHASH_SIZE), MINHASH_TYPE)], Counter[str]()
    reading = plan.readings.get(path.name) or next(iter(plan.readings.values()))  # none: its lines are unusable anyway
    for block in _line_blocks(path):
        contents = [line.content for line in block]
        records, reasons = exact_records(contents, reading)
        skipped.update(reasons)
        if plan.wording:
            sketches.append(sketch_lines([contents[index] for index in records["line"].tolist()], reading))
        records["bytes"] = np.array([line.length for line in block])[records["line"]]
        records["line"] += block[0].number
        rows.append(records)
    return np.concatenate(rows), np.concatenate(sketches), skipped


def _line_blocks(path: Path) -> Iterable[list[Any]]:
    block: list[Any] = []
    for line in read_lines(path):
        block.append(line)
        if len(block) == _BLOCK_LINES:
            yield block
            block = []
    if block:
        yield block


def compare_all(_data: Any, rank: int = 0, world_size: int = 1, *, plan: PipelinePlan) -> None:
    """Step 2: decide which rows of all files to remove; of equal ones the first stays, in order of file names."""
    folder = plan.out / "stages"
    files = input_files(plan.source)
    stages = [np.load(folder / f"{path.name}.npz") for path in files]
    rows = np.concatenate([stage["rows"] for stage in stages])
    exact = exact_duplicates(rows)
    wording = np.full(len(rows), NO_ROW, np.int64)
    if plan.wording:
        wording = similar_wording(np.concatenate([stage["sketches"] for stage in stages]), exact, rows["rest"])
    is_removed = (exact != NO_ROW) | (wording != NO_ROW)
    start = 0
    skipped: Counter[str] = Counter()
    for path, stage in zip(files, stages, strict=True):
        end = start + len(stage["rows"])
        np.save(folder / f"{path.name}.goes.npy", stage["rows"]["line"][is_removed[start:end]])
        skipped.update(msgspec.json.decode((folder / f"{path.name}.skipped").read_bytes()))
        start = end
    summary = {
        "files": len(files),
        "rows": len(rows),
        "bytes": int(rows["bytes"].sum(dtype=np.int64)),
        "exact_duplicates": int((exact != NO_ROW).sum()),
        "wording_duplicates": int((wording != NO_ROW).sum()),
        "kept_rows": int((~is_removed).sum()),
        "kept_bytes": int(rows["bytes"][~is_removed].sum(dtype=np.int64)),
        "skipped": dict(skipped),
        "not_read": not_read(plan.source),
    }
    (plan.out / _SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")


def copy_share(_data: Any, rank: int = 0, world_size: int = 1, *, plan: PipelinePlan) -> None:
    """Step 3: copy this task's files without the removed rows, byte for byte."""
    folder = plan.out / "kept"
    folder.mkdir(exist_ok=True)
    for path in input_files(plan.source)[rank::world_size]:
        removed_lines = iter(np.load(plan.out / "stages" / f"{path.name}.goes.npy").tolist())
        next_removed = next(removed_lines, None)
        # not `atomic_file`: the ending decides whether `open_bytes` compresses
        part = folder / f".part.{path.name}"
        with open_bytes(part, "wb") as target:
            copier = format_of(path).copier(target)
            for line in read_lines(path):
                if line.number == next_removed:
                    next_removed = next(removed_lines, None)
                else:
                    copier.write(line)
            copier.close()
        part.replace(folder / path.name)
