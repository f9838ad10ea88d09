"""The groups that a data set's texts form, and the rows that repeat another one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from gpuwatch.dataset.embedding import Vectors
from gpuwatch.dataset.onnx_models import Array, import_extra
from gpuwatch.dataset.scan import (
    MIN_WORDING_SIMILARITY,
    NO_ROW,
    AuditProgress,
    RowNumbers,
    ScannedFile,
    wording_similarity,
)
from gpuwatch.dataset.work_folder import StepClock

# --- groups: many topics, or one? -------------------------------------------------------------------------------------

# KMeans on the texts' vectors, with scikit-learn: Lloyd, "Least squares quantization in PCM", 1982, initialised by
# k-means++ (Arthur and Vassilvitskii, 2007); in mini-batches above 100,000 rows (Sculley, "Web-scale k-means
# clustering", 2010). KMeans splits a crowd of similar texts into many clusters, so clusters with similar centres are
# joined (average linkage, Sokal and Michener, 1958).
CROWDED_SHARE = 0.9  # of the rows in a tenth of the clusters: the threshold of the sources
JOIN_COSINE = 0.8  # of two centres; values from 0.7 to 0.9 distinguish the same sets
NO_CLUSTER = -1
_TOP = 0.1
_ROWS_PER_CLUSTER = 5  # with fewer rows, the share depends more on the sample size than on the data
MAX_KMEANS_ROWS = 100_000  # above it, mini-batches
_BATCH = 4_096
_MEASURED_ROWS = 5 * _BATCH
_SAMPLE = 25  # rows per part that determine its centre
_BATCH_ROWS = 65_536

Labels = np.ndarray[Any, np.dtype[np.int32]]


class RowClusters(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster of each row, and how unevenly the clusters are filled."""

    labels: Labels  # after joining; `NO_CLUSTER`: the model could not read the row
    sizes: tuple[int, ...]  # of each cluster, the largest first
    plain_sizes: tuple[int, ...]  # before joining
    wanted: int  # clusters requested; there may be fewer texts
    method: str

    @property
    def top(self) -> int:
        """The number of clusters that make up a tenth of them."""
        return max(1, math.ceil(_TOP * len(self.sizes)))

    @property
    def top_share(self) -> float:
        """The share of the rows in the largest tenth of the clusters."""
        return sum(self.sizes[: self.top]) / max(1, sum(self.sizes))

    @property
    def plain_top_share(self) -> float:
        """The same share before joining, as the sources compute it."""
        return sum(self.plain_sizes[: max(1, math.ceil(_TOP * len(self.plain_sizes)))]) / max(1, sum(self.plain_sizes))

    @property
    def verdict(self) -> str:
        """Return "crowded", "spread", or "not enough data"."""
        if sum(self.sizes) < _ROWS_PER_CLUSTER * self.wanted:
            return "not enough data"
        return "crowded" if max(self.top_share, self.plain_top_share) >= CROWDED_SHARE else "spread"

    @property
    def rows_needed(self) -> int:
        """The number of rows that a verdict needs."""
        return _ROWS_PER_CLUSTER * self.wanted


def load_clustering() -> None:
    """Import the library, which takes seconds: a measurement that is scaled must not contain it."""
    import_extra("sklearn.cluster")


def cluster_rows(all_vectors: Vectors, is_read: Array, is_first: Array, wanted_clusters: int, seed: int) -> RowClusters:
    """Group the rows; the result is always the same on one machine.

    Args:
        is_read: a row that the model could not read belongs to no cluster.
        is_first: the first row of each text; the number of different texts limits the clusters.
    """
    vectors = all_vectors if is_read.all() else all_vectors[is_read]
    count = max(1, min(wanted_clusters, int((is_read & is_first).sum())))
    kind = "KMeans" if len(vectors) <= MAX_KMEANS_ROWS else "MiniBatchKMeans"
    plain = np.zeros(len(vectors), np.int32) if count == 1 else _cluster_labels(vectors, count, seed, kind)
    merged = _merged_labels(vectors, plain)[plain]
    labels = np.full(len(is_read), NO_CLUSTER, np.int32)
    labels[is_read] = merged
    return RowClusters(
        labels=labels,
        sizes=_sizes(merged),
        plain_sizes=_sizes(plain),
        wanted=wanted_clusters,
        method=f"{kind}, {count} clusters, seed {seed}, joined from cosine {JOIN_COSINE:g} on",
    )


def _sizes(labels: Labels) -> tuple[int, ...]:
    """Rows of each non-empty cluster, the largest first."""
    return tuple(sorted(filter(None, np.bincount(labels).tolist()), reverse=True))


def _merged_labels(vectors: Vectors, plain: Labels) -> Labels:
    """For each cluster, the number of the cluster that it is merged into."""
    count = int(plain.max()) + 1 if len(plain) else 0
    centres = _sums(vectors, plain, count)
    filled = np.flatnonzero(np.linalg.norm(centres, axis=1) > 0)
    merged = np.zeros(count, np.int32)
    if len(filled) > 1:
        units = centres[filled] / np.linalg.norm(centres[filled], axis=1, keepdims=True)
        merged[filled] = (
            import_extra("sklearn.cluster")
            .AgglomerativeClustering(None, metric="cosine", linkage="average", distance_threshold=1 - JOIN_COSINE)
            .fit(units)
            .labels_
        )
    return merged


def _sums(vectors: Vectors, plain: Labels, count: int) -> Vectors:
    """The sum of each cluster's vectors."""
    sums = np.zeros((count, vectors.shape[1]), np.float64)
    for start in range(0, len(plain), _BATCH_ROWS):
        part = slice(start, start + _BATCH_ROWS)
        np.add.at(sums, plain[part], np.asarray(vectors[part], np.float64))
    return sums


def measure_mini_batches(vectors: Vectors, wanted_clusters: int, seed: int) -> tuple[float, float]:
    """Seconds that clustering in mini-batches takes: for the centres, which stop early, and for each row after that.

    Args:
        vectors: a few of those to be clustered; repeated until they fill some batches.
    """
    load_clustering()
    some = np.resize(np.asarray(vectors[:_MEASURED_ROWS]), (_MEASURED_ROWS, vectors.shape[1]))
    clock = StepClock()
    with clock.step("centres"):
        centres = _mini_batch_centres(some, wanted_clusters, seed)
    with clock.step("rows"), import_extra("threadpoolctl").threadpool_limits(1):
        _sums(some, nearest_centre(some, centres), len(centres))
    return clock.seconds["centres"], clock.seconds["rows"] / len(some)


def _mini_batch_centres(vectors: Vectors, count: int, seed: int) -> Vectors:
    with import_extra("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = import_extra("sklearn.cluster").MiniBatchKMeans(
            n_clusters=count, random_state=seed, n_init=3, batch_size=_BATCH, compute_labels=False
        )
        return np.asarray(model.fit(vectors).cluster_centers_)


def _cluster_labels(vectors: Vectors, count: int, seed: int, kind: str) -> Labels:
    """The cluster number of each row."""
    with import_extra("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with nearly equal texts, fewer clusters than requested are fine
        if kind == "KMeans":
            model = import_extra("sklearn.cluster").KMeans(n_clusters=count, random_state=seed, n_init=1)
            return np.asarray(model.fit(np.asarray(vectors)).labels_, np.int32)
        return nearest_centre(vectors, _mini_batch_centres(vectors, count, seed))


def split_cluster(vectors: Vectors, members: Array, max_rows: int) -> Labels:
    """Split rows into similar parts of `max_rows` on average; for each row the numbers of its two nearest parts."""
    count = -(-len(members) // max_rows)
    sample = np.asarray(vectors[members[:: max(1, len(members) // max(max_rows, _SAMPLE * count))]])
    with import_extra("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # similar texts result in fewer parts
        model = (
            import_extra("sklearn.cluster")
            .KMeans(n_clusters=min(count, len(sample)), random_state=0, n_init=1)
            .fit(sample)
        )
    centres = model.cluster_centers_
    half = (centres * centres).sum(axis=1) / 2
    pairs = np.empty((len(members), 2), np.int32)
    for start in range(0, len(members), _BATCH_ROWS):
        batch = slice(start, start + _BATCH_ROWS)
        pairs[batch] = np.argsort(half - vectors[members[batch]] @ centres.T, axis=1, kind="stable")[:, :2]
    return pairs


def nearest_centre(vectors: Vectors, centres: Vectors) -> Labels:
    """The number of the centre nearest to each row."""
    nearest = np.empty(len(vectors), np.int32)
    half = (centres * centres).sum(axis=1) / 2
    for start in range(0, len(vectors), _BATCH_ROWS):
        part = np.asarray(vectors[start : start + _BATCH_ROWS])
        nearest[start : start + len(part)] = (part @ centres.T - half).argmax(axis=1)
    return nearest


# --- duplicates: the same text, or nearly the same --------------------------------------------------------------------

# Exact: equal texts, by a 128-bit hash. Near: the cosine of the vectors is at or above a threshold within a cluster, as
# in SemDeDup (Abbas et al., 2023); the first of similar rows stays. A model reads only the start of a long text. So if
# one of the two was cut, their whole wording must be similar, too.
_BLOCK = 1_024
_PART_ROWS = 20_000  # a larger cluster is compared in parts: the time grows with the square of the rows
_NearMatches = tuple[float, RowNumbers, Array, Array]  # threshold; per row: what it repeats, cosine, is it repeated?


def exact_duplicates(rows: Array) -> RowNumbers:
    """For each row the first row with the same text; `NO_ROW` if it is the first one itself."""
    duplicate_of = np.full(len(rows), NO_ROW, np.int64)
    if len(rows) < 2:
        return duplicate_of
    order = np.lexsort((np.arange(len(rows)), rows["hash_rest"], rows["hash"]))
    first, rest = rows["hash"][order], rows["hash_rest"][order]
    begins = np.concatenate(([True], (first[1:] != first[:-1]) | (rest[1:] != rest[:-1])))
    leaders = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    duplicate_of[order[~begins]] = leaders[~begins]
    return duplicate_of


def near_duplicates(
    scanned: ScannedFile, labels: Labels, exact: RowNumbers, threshold: float | None, progress: AuditProgress
) -> tuple[RowNumbers, np.ndarray[Any, np.dtype[np.float32]]]:
    """For each row a similar earlier row that stays, and their cosine; `NO_ROW`: there is none, or no threshold."""
    near = np.full(len(labels), NO_ROW, np.int64)
    cosines = np.zeros(len(labels), np.float32)
    if threshold is None:
        return near, cosines
    near_matches = threshold, near, cosines, np.zeros(len(labels), bool)
    firsts = np.flatnonzero((exact == NO_ROW) & (scanned.rows["unread"] == 0))
    compared = 0
    for members in _parts(scanned.vectors, firsts, labels):
        _compare(scanned, members, near_matches)
        compared += len(members)
        progress("comparing", min(compared, len(firsts)), len(firsts))
    return near, cosines


def compared_pairs(cluster_sizes: Sequence[int], growth: float) -> float:
    """Pairs that clusters of these sizes form, each so many times as large: all of a cluster, in large ones of parts.

    Each row of a large cluster is in two parts.
    """
    rows = [size * growth for size in cluster_sizes]
    return sum(size * (size if size <= _PART_ROWS else _PART_ROWS / 2) for size in rows)


def _parts(vectors: Vectors, firsts: RowNumbers, labels: Labels) -> Iterator[RowNumbers]:
    """The rows of each cluster in order; a large cluster in overlapping parts."""
    order = firsts[np.argsort(labels[firsts], kind="stable")]
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(order) else ():
        if len(members) <= _PART_ROWS:
            yield members
            continue
        inner = split_cluster(vectors, members, _PART_ROWS // 4)  # each row is in two
        yield from (members[(inner == number).any(axis=1)] for number in range(int(inner.max()) + 1))


def _compare(scanned: ScannedFile, members: RowNumbers, near_matches: _NearMatches) -> None:
    """Compare each row with the earlier rows that stay."""
    near = near_matches[1]
    members = members[near[members] == NO_ROW]  # rows removed in an earlier part are done
    unique_members: list[RowNumbers] = []
    for start in range(0, len(members), _BLOCK):
        block = members[start : start + _BLOCK]
        vectors = np.asarray(scanned.vectors[block])
        for earlier in unique_members:
            similarity = vectors @ np.asarray(scanned.vectors[earlier]).T
            _mark_near(scanned, block, earlier, similarity, near_matches)
        inside = np.tril(vectors @ vectors.T, -1)
        _mark_near(scanned, block, block, inside, near_matches)
        unique_members.append(block[near[block] == NO_ROW])


def _mark_near(
    scanned: ScannedFile, block: RowNumbers, earlier: RowNumbers, similarity: Vectors, near_matches: _NearMatches
) -> None:
    """Row by row, most similar first: a removed row removes no others, and a row that others were removed for stays."""
    threshold, near, cosines, kept_for = near_matches
    for index in np.flatnonzero((similarity >= threshold).any(axis=1)):
        row = block[index]
        if near[row] != NO_ROW or kept_for[row]:
            continue
        hits = np.flatnonzero(similarity[index] >= threshold)
        hits = hits[scanned.rows["rest"][earlier[hits]] == scanned.rows["rest"][row]]
        for other in hits[np.argsort(-similarity[index, hits], kind="stable")]:
            if near[earlier[other]] == NO_ROW and _has_similar_wording(scanned, row, earlier[other]):
                near[row], cosines[row], kept_for[earlier[other]] = earlier[other], similarity[index, other], True
                break


def _has_similar_wording(scanned: ScannedFile, row: int, other: int) -> bool:
    if not (scanned.rows["cut"][row] or scanned.rows["cut"][other]):
        return True
    return wording_similarity(scanned.sketches[row], scanned.sketches[other]) >= MIN_WORDING_SIMILARITY
