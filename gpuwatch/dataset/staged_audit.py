"""An audit of a file of any size: the cheap stages over all rows, the model over a sample."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from gpuwatch.dataset.audit import Audit, AuditModels, RemovalReason, RemovalRules, audit_file
from gpuwatch.dataset.cheap_stages import WholeFile, read_whole, wording_duplicates
from gpuwatch.dataset.onnx_models import Array
from gpuwatch.dataset.rows import read_lines
from gpuwatch.dataset.scan import AuditProgress, ScannedFile
from gpuwatch.dataset.text_rows import FieldSelection
from gpuwatch.dataset.wording import NO_ROW, RowNumbers
from gpuwatch.dataset.work_folder import WorkFolder, open_work_folder

_MIN_ROW_BYTES = 10  # bytes: {"a":"b"} and its line end


class AuditPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The file, the models, and the rules for removing rows.

    Attributes:
        sample: number of rows that the model reads; None, or more than there are: all rows.
        threads: processors of the stages without a model.
    """

    reading: FieldSelection
    rules: RemovalRules
    models: AuditModels
    sample: int | None
    threads: int


def audit_in_stages(path: Path, plan: AuditPlan, folder: WorkFolder, progress: AuditProgress) -> Audit:
    """Find equal texts and wording in the whole file, and apply the model to a sample of its rows.

    Raises:
        NoUsableRows: the file contains nothing that can be judged.
        UsageError: it cannot be read.
    """
    reading, rules, models, sample = plan.reading, plan.rules, plan.models, plan.sample
    if sample is None or (path.suffix != ".gz" and path.stat().st_size < sample * _MIN_ROW_BYTES):
        return audit_file(path, reading, rules, models, folder, progress)
    file = read_whole(path, reading, folder, plan.threads, progress, wording=rules.near is not None)
    if len(file.rows) <= sample:
        return audit_file(path, reading, rules, models, folder, progress)
    members = np.sort(np.random.RandomState(rules.seed).choice(len(file.rows), sample, replace=False))
    part = folder.path / "sample.jsonl"
    lines = np.asarray(file.rows["line"][members])
    _write_lines(path, lines, part)
    with open_work_folder(folder.path / "sample") as inner:
        read = audit_file(part, reading, rules, models, inner, progress)
    rows = np.array(read.scanned.rows)
    rows["line"] = lines
    return _joined_audit(file, members, replace(read, path=path, scanned=replace(read.scanned, rows=rows)))


def _write_lines(path: Path, numbers: Array, target: Path) -> None:
    """Write a file of some lines, unless it exists; the state of its audit stays valid as long as its content does."""
    selected = set(numbers.tolist())
    content = b"".join(
        (line.content or b"").rstrip(b"\r\n") + b"\n" for line in read_lines(path) if line.number in selected
    )
    if not target.exists() or target.read_bytes() != content:
        target.write_bytes(content)


def _joined_audit(file: WholeFile, members: RowNumbers, read: Audit) -> Audit:
    """The audit of the whole file, with the model's findings at the positions of its rows."""
    rows = np.array(file.rows)
    share = read.scanned.rows["tokens"].sum() / max(1, int(read.scanned.rows["bytes"].sum()))
    rows["tokens"] = np.rint(rows["bytes"] * share)
    rows["tokens"][members] = read.scanned.rows["tokens"]
    rows["unread"][members] = read.scanned.rows["unread"]
    wording = np.full(len(rows), NO_ROW, np.int64)
    if read.rules.near is not None:
        wording = wording_duplicates(file)
    near, cosines = np.full(len(rows), NO_ROW, np.int64), np.zeros(len(rows), np.float32)
    matched = np.flatnonzero(read.near != NO_ROW)
    near[members[matched]], cosines[members[matched]] = members[read.near[matched]], read.cosines[matched]
    reasons = np.zeros(len(rows), np.uint8)
    is_kept = (file.exact == NO_ROW) & (wording == NO_ROW)
    of_near = np.flatnonzero(near != NO_ROW)
    of_near = of_near[
        is_kept[near[of_near]] & ~np.isin(of_near, wording)
    ]  # a row that another one is removed for stays
    reasons[of_near] = RemovalReason.NEAR
    reasons[wording != NO_ROW] = RemovalReason.WORDING
    if read.rules.exact:
        reasons[file.exact != NO_ROW] = RemovalReason.EXACT
    scanned = ScannedFile(
        rows=rows,
        vectors=read.scanned.vectors,
        sketches=file.sketches,
        skipped=file.skipped,
        lines=file.lines,
        bytes=file.bytes,
        of=file.of,
    )
    return replace(
        read,
        scanned=scanned,
        exact=file.exact,
        near=near,
        cosines=cosines,
        wording=wording,
        reasons=reasons,
        sample=read,
    )
