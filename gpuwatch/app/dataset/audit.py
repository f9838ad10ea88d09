"""The whole audit of a file: read, grouped, compared, judged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from gpuwatch.app.dataset.clusters import RowClusters, cluster_rows
from gpuwatch.app.dataset.duplicates import (
    NO_ROW,
    RowNumbers,
    exact_duplicates,
    near_duplicates,
)
from gpuwatch.app.dataset.embedding import Embedder, Vectors
from gpuwatch.app.dataset.perplexity import CausalModel, Perplexities, measure_perplexity
from gpuwatch.app.dataset.removal import (
    RemovalReason,
    RemovalReasons,
    RemovalRules,
    RowFindings,
    reasons_of,
)
from gpuwatch.app.dataset.scan import (
    AuditProgress,
    NoUsableRows,
    ScannedFile,
    scan_file,
)
from gpuwatch.app.dataset.texts import FieldSelection
from gpuwatch.app.dataset.tokens import TokenCounter
from gpuwatch.app.dataset.work_folder import WorkFolder


class AuditModels(msgspec.Struct, frozen=True, kw_only=True):
    """What reads the texts."""

    embedder: Embedder
    counter: TokenCounter
    causal: CausalModel | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a file. Arrays have one entry a row with text, in the file's order."""

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

    @property
    def kept(self) -> int:
        """Rows that stay."""
        return int((self.reasons == RemovalReason.KEPT).sum())


def audit_file(
    path: Path,
    reading: FieldSelection,
    rules: RemovalRules,
    models: AuditModels,
    folder: WorkFolder,
    progress: AuditProgress,
) -> Audit:
    """Read what was not read yet, and judge.

    Raises:
        NoRows: nothing in the file can be judged.
        UsageError: it cannot be read.
    """
    scanned = scan_file(path, reading, folder, models.embedder, models.counter, progress)
    rows = len(scanned.rows)
    if not rows:
        raise NoUsableRows(f"{path}: no line holds text in {', '.join(reading.fields)}")
    exact = exact_duplicates(scanned.rows)
    progress("grouping", 0, 0)
    clusters = cluster_rows(scanned.vectors, int((exact == NO_ROW).sum()), rules.clusters, rules.seed)
    near, cosines = np.full(rows, NO_ROW, np.int64), np.zeros(rows, np.float32)
    if rules.near is not None:
        near, cosines = near_duplicates(scanned, clusters.labels, exact, rules.near, progress)
    perplexities = None
    if models.causal is not None:
        perplexities = measure_perplexity(path, reading.fields, scanned, folder, models.causal, progress)
    found = RowFindings(
        hashes=np.asarray(scanned.rows["hash"]),
        labels=clusters.labels,
        exact=exact,
        near=near,
        perplexities=perplexities,
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
        reasons=reasons_of(found, rules),
    )
