"""The whole audit of a file: read, grouped, compared, judged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from gpuwatch.dataset.clusters import Clusters, clustered
from gpuwatch.dataset.duplicates import NONE, Places, exact_duplicates, near_duplicates
from gpuwatch.dataset.embedding import Embedder, Vectors
from gpuwatch.dataset.perplexity import CausalModel, Perplexities, measured
from gpuwatch.dataset.removal import Found, Reason, Reasons, Rules, reasons_of
from gpuwatch.dataset.scan import NoRows, Progress, Scanned, scan
from gpuwatch.dataset.texts import Reading
from gpuwatch.dataset.tokens import TokenCounter
from gpuwatch.dataset.work_folder import WorkFolder


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """What reads the texts."""

    embedder: Embedder
    counter: TokenCounter
    causal: CausalModel | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a file. Arrays have one entry a row with text, in the file's order."""

    path: Path
    reading: Reading
    rules: Rules
    models: Models
    scanned: Scanned
    clusters: Clusters
    exact: Places
    near: Places
    cosines: Vectors
    perplexities: Perplexities | None
    reasons: Reasons

    @property
    def kept(self) -> int:
        """Rows that stay."""
        return int((self.reasons == Reason.KEPT).sum())


def audited(
    path: Path,
    reading: Reading,
    rules: Rules,
    models: Models,
    folder: WorkFolder,
    progress: Progress,
) -> Audit:
    """Read what was not read yet, and judge.

    Raises:
        NoRows: nothing in the file can be judged.
        UsageError: it cannot be read.
    """
    scanned = scan(path, reading, folder, models.embedder, models.counter, progress)
    rows = len(scanned.rows)
    if not rows:
        raise NoRows(f"{path}: no line holds text in {', '.join(reading.fields)}")
    exact = exact_duplicates(scanned.rows)
    progress("grouping", 0, 0)
    clusters = clustered(scanned.vectors, int((exact == NONE).sum()), rules.clusters, rules.seed)
    near, cosines = np.full(rows, NONE, np.int64), np.zeros(rows, np.float32)
    if rules.near is not None:
        near, cosines = near_duplicates(scanned, clusters.labels, exact, rules.near, progress)
    perplexities = None
    if models.causal is not None:
        perplexities = measured(path, reading.fields, scanned, folder, models.causal, progress)
    found = Found(
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
