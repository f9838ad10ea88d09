"""The audit of a file: read, group and compare its rows, and decide which ones to remove."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from gpuwatch.dataset.cheap_stages import WholeFile, read_whole, wording_duplicates
from gpuwatch.dataset.duplicates import (
    NO_CLUSTER,
    Labels,
    RowClusters,
    cluster_rows,
    exact_duplicates,
    load_clustering,
    near_duplicates,
)
from gpuwatch.dataset.embedding import Embedder, Vectors
from gpuwatch.dataset.formats.file_lines import is_packed
from gpuwatch.dataset.formats.row_files import format_of, read_lines
from gpuwatch.dataset.onnx_models import Array, TokenCounter
from gpuwatch.dataset.perplexity import CausalModel, Perplexities, measure_perplexity
from gpuwatch.dataset.scan import (
    NO_ROW,
    AuditProgress,
    NoUsableRows,
    RowNumbers,
    ScannedFile,
    scan_file,
    similar_wording,
)
from gpuwatch.dataset.text_rows import FieldSelection
from gpuwatch.dataset.work_folder import StepClock, WorkFolder, open_work_folder

RemovalReasons = np.ndarray[Any, np.dtype[np.uint8]]
CLUSTERS, NEARLY_THE_SAME = "clusters", "nearly the same"  # steps, as a report has them


class RemovalReason(IntEnum):
    """Why a row is removed; the first reason that applies counts."""

    KEPT = 0
    EXACT = 1
    NEAR = 2
    SURPRISING = 3
    PLAIN = 4
    CROWDED = 5
    WORDING = 6

    @property
    def text(self) -> str:
        """The name of the reason in reports."""
        return _TEXTS[self]


_TEXTS = {
    RemovalReason.KEPT: "kept",
    RemovalReason.EXACT: "the same text",
    RemovalReason.NEAR: "nearly the same text",
    RemovalReason.SURPRISING: "perplexity above the limit",
    RemovalReason.PLAIN: "perplexity below the limit",
    RemovalReason.WORDING: "nearly the same wording",
    RemovalReason.CROWDED: "more than a cluster may keep",
}


class RemovalRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for removing rows. None: the rule is off."""

    exact: bool = True
    near: float | None = None  # cosine
    most_perplexity: float | None = None
    least_perplexity: float | None = None
    per_cluster: int | None = None  # rows
    clusters: int = 100
    seed: int = 42


class AuditModels(msgspec.Struct, frozen=True, kw_only=True):
    """The models that process the texts."""

    embedder: Embedder
    counter: TokenCounter
    causal: CausalModel | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """All results for a file. Arrays have one entry per row with text, in the file's order."""

    path: Path
    reading: FieldSelection
    rules: RemovalRules
    models: AuditModels
    scanned: ScannedFile
    clusters: RowClusters
    exact: RowNumbers
    near: RowNumbers
    cosines: Vectors
    perplexities: Perplexities | None
    reasons: RemovalReasons
    wording: RowNumbers
    seconds: dict[str, float]  # step → how long it took
    sample: Audit | None = None  # of the rows that a model read, if these are not all rows

    @property
    def read(self) -> Audit:
        """The audit of the rows that a model read."""
        return self.sample or self

    @property
    def kept(self) -> int:
        """The number of rows that stay."""
        return int((self.reasons == RemovalReason.KEPT).sum())


def audit_file(
    path: Path,
    reading: FieldSelection,
    rules: RemovalRules,
    models: AuditModels,
    folder: WorkFolder,
    progress: AuditProgress,
) -> Audit:
    """Read what has not been read before, and decide.

    Raises:
        NoUsableRows: the file contains nothing that can be judged.
        UsageError: it cannot be read.
    """
    scanned = scan_file(path, reading, folder, models.embedder, models.counter, progress)
    if not len(scanned.rows):
        raise NoUsableRows(f"{path}: no line has text in {', '.join(reading.fields)}")
    exact = exact_duplicates(scanned.rows)
    progress("grouping", 0, 0)
    load_clustering()
    clock, is_read = StepClock(), scanned.rows["unread"] == 0
    with clock.step(CLUSTERS):
        clusters = cluster_rows(scanned.vectors, is_read, exact == NO_ROW, rules.clusters, rules.seed)
    with clock.step(NEARLY_THE_SAME):
        near, cosines = near_duplicates(scanned, clusters.labels, exact, rules.near, progress)
    perplexities = None
    if models.causal is not None:
        perplexities = measure_perplexity(path, reading, scanned, folder, models.causal, progress)
    wording = np.full(len(exact), NO_ROW, np.int64)
    if rules.near is not None:
        wording = similar_wording(scanned.sketches, np.where(near == NO_ROW, exact, near), scanned.rows["rest"])
    hashes, labels = np.asarray(scanned.rows["hash"]), clusters.labels
    findings = RowFindings(
        hashes=hashes, labels=labels, exact=exact, near=near, wording=wording, perplexities=perplexities
    )
    return Audit(
        path=path,
        reading=reading,
        rules=rules,
        models=models,
        scanned=scanned,
        clusters=clusters,
        exact=exact,
        near=near,
        cosines=cosines,
        perplexities=perplexities,
        reasons=reasons_of(findings, rules),
        wording=wording,
        seconds=folder.seconds("scan", *(["perplexity"] if models.causal else [])) | clock.seconds,
    )


class RowFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of each row."""

    hashes: Array
    labels: Labels
    exact: RowNumbers
    near: RowNumbers
    wording: RowNumbers
    perplexities: Perplexities | None


def reasons_of(findings: RowFindings, rules: RemovalRules) -> RemovalReasons:
    """The reason for each row."""
    reasons = np.zeros(len(findings.labels), np.uint8)
    if findings.perplexities is not None:
        if rules.least_perplexity is not None:
            reasons[findings.perplexities < rules.least_perplexity] = RemovalReason.PLAIN
        if rules.most_perplexity is not None:
            reasons[findings.perplexities > rules.most_perplexity] = RemovalReason.SURPRISING
    if rules.near is not None:
        reasons[findings.wording != NO_ROW] = RemovalReason.WORDING
        reasons[findings.near != NO_ROW] = RemovalReason.NEAR
    if rules.exact:
        reasons[findings.exact != NO_ROW] = RemovalReason.EXACT
    if rules.per_cluster is not None:
        reasons[_beyond_limit(findings, reasons, rules.per_cluster, rules.seed)] = RemovalReason.CROWDED
    return reasons


def _beyond_limit(findings: RowFindings, reasons: RemovalReasons, limit: int, seed: int) -> RowNumbers:
    """The rows of each cluster beyond the limit; the texts decide which rows stay, not their order in the file."""
    left = np.flatnonzero((reasons == RemovalReason.KEPT) & (findings.labels != NO_CLUSTER))
    random_keys = findings.hashes[left] ^ np.random.RandomState(seed).randint(0, 1 << 63, dtype=np.int64).astype(
        np.uint64
    )
    mixed = random_keys * np.uint64(
        0x9E3779B97F4A7C15
    )  # Fibonacci hashing (Knuth): spreads the seed over the leading bits
    order = left[np.lexsort((mixed, findings.labels[left]))]
    labels = findings.labels[order]
    starts = (
        np.flatnonzero(np.concatenate(([True], labels[1:] != labels[:-1]))) if len(order) else np.empty(0, np.int64)
    )
    rank_in_cluster = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return order[rank_in_cluster >= limit]


# --- files of any size: the cheap stages over all rows, the model over a sample ---------------------------------------

_MIN_ROW_BYTES = 10  # bytes: {"a":"b"} and its line end


class AuditPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The fields, the models, and the rules for removing rows.

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
    is_small = format_of(path).has_byte_sizes and path.stat().st_size < (sample or 0) * _MIN_ROW_BYTES
    if sample is None or (is_small and not is_packed(path)):
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
    read = replace(read, path=path, scanned=replace(read.scanned, rows=rows))
    return replace(_joined_audit(file, members, read), seconds=read.seconds | folder.seconds("exact", "wording"))


def _write_lines(path: Path, numbers: Array, target: Path) -> None:
    """Write a file of some lines, unless it exists; the state of its audit stays valid as long as its content does."""
    selected = set(numbers.tolist())
    content = b"".join(
        line.content.rstrip(b"\r\n") + b"\n"
        for line in read_lines(path)
        if line.number in selected and isinstance(line.content, bytes)
    )
    if not target.exists() or target.read_bytes() != content:
        target.write_bytes(content)


def _joined_audit(file: WholeFile, members: RowNumbers, read: Audit) -> Audit:
    """The audit of the whole file, with the model's findings at the positions of its rows."""
    rows = np.array(file.rows)
    share = read.scanned.rows["tokens"].sum() / max(1, int(rows["bytes"][members].sum()))
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
