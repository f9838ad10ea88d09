"""The findings of an audit as one JSON document, with a few rows of the file as examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gpuwatch.dataset.audit import Audit, RemovalReason
from gpuwatch.dataset.clusters import CROWDED_SHARE, NO_CLUSTER
from gpuwatch.dataset.onnx_models import Array
from gpuwatch.dataset.rows import UnusableLine, parse_json_line, read_lines
from gpuwatch.dataset.saving import TrainingSaving
from gpuwatch.dataset.text_rows import FieldSelection, read_text_row
from gpuwatch.dataset.wording import MIN_WORDING_SIMILARITY, NO_ROW, RowNumbers
from gpuwatch.domain.market.text import clean

_QUANTILES = (1, 5, 25, 50, 75, 95, 99)
_CLUSTERS = 10
_PAIRS = 10
_TWO_SIDED_95 = 1.96  # standard errors; that of a share is at most 0.5 / √rows
_CHARACTERS = 160
_SAMPLE = 2_000  # rows of a cluster that determine its centre


def report_of(audit: Audit, saving: TrainingSaving) -> dict[str, Any]:
    """The document; money fields end in `_usd` or `_usd_gpu_hour`."""
    largest, pairs = _examples(audit.read)
    scanned, removed = audit.scanned, audit.reasons != RemovalReason.KEPT
    return {
        "file": str(audit.path),
        "method": _method(audit),
        "samples": len(scanned.rows),
        "bytes": scanned.bytes,
        "lines": scanned.lines,
        "fields": list(audit.reading.fields),
        "fields_guessed": audit.reading.guessed,
        "fields_not_read": list(audit.reading.others),
        "skipped": dict(scanned.skipped),
        "rows": _row_weight(audit, np.ones(len(removed), bool)),
        "tokens_estimated": audit.models.counter.estimate or audit.sample is not None,
        "unread_rows": int(audit.read.scanned.rows["unread"].sum()),
        "cut_rows": int(audit.read.scanned.rows["cut"].sum()),
        "clusters": _cluster_facts(audit.read) | {"largest": largest},
        "sampled": _sample_json(audit),
        "exact_duplicates": int((audit.reasons == RemovalReason.EXACT).sum()),
        "wording_duplicates": int((audit.reasons == RemovalReason.WORDING).sum()),
        "near_duplicates": int((audit.reasons == RemovalReason.NEAR).sum()),
        "near_threshold": audit.rules.near,
        "near_examples": pairs,
        "perplexity": _perplexity(audit),
        "removed": {**_row_weight(audit, removed), "reasons": _by_reason(audit)},
        "kept": _row_weight(audit, ~removed),
        "saving": _saving(saving),
    }


def _sample_json(audit: Audit) -> dict[str, Any] | None:
    """The part of the file that a model read, and the error of shares of it; None: it read all rows."""
    if audit.sample is None:
        return None
    rows = len(audit.sample.scanned.rows)
    return {"rows": rows, "of": len(audit.scanned.rows), "share_error_95": round(_TWO_SIDED_95 * 0.5 / rows**0.5, 4)}


def _method(audit: Audit) -> str:
    near = "" if audit.rules.near is None else f"; near duplicates: cosine ≥ {audit.rules.near:g} inside a cluster"
    cut_text = (
        ""
        if audit.rules.near is None
        else f", and where a text was cut, {MIN_WORDING_SIMILARITY:.0%} of its wording (MinHash)"
    )
    return f"{audit.models.embedder.name}; {audit.clusters.method}{near}{cut_text}"


def _row_weight(audit: Audit, mask: Array) -> dict[str, int]:
    rows = audit.scanned.rows
    weighed = {key: int(rows[key][mask].sum(dtype=np.int64)) for key in ("bytes", "tokens")}
    return {"rows": int(mask.sum()), **weighed}


def _by_reason(audit: Audit) -> dict[str, dict[str, int]]:
    weights = {
        reason: _row_weight(audit, audit.reasons == reason)
        for reason in RemovalReason
        if reason is not RemovalReason.KEPT
    }
    return {reason.text: weight for reason, weight in weights.items() if weight["rows"]}


def _cluster_facts(audit: Audit) -> dict[str, Any]:
    clusters = audit.clusters
    return {
        "method": clusters.method,
        "samples": sum(clusters.sizes),
        "asked": clusters.wanted,
        "found": len(clusters.sizes),
        "top": clusters.top,
        "top_share": clusters.top_share,
        "top_share_before_joining": clusters.plain_top_share,
        "crowded_from": CROWDED_SHARE,
        "verdict": clusters.verdict,
        "rows_needed": clusters.rows_needed,
    }


def _perplexity(audit: Audit) -> dict[str, Any] | None:
    if audit.perplexities is None or audit.models.causal is None:
        return None
    finite = audit.perplexities[np.isfinite(audit.perplexities)]
    quantiles: Iterable[float] = np.quantile(finite, [percent / 100 for percent in _QUANTILES]) if len(finite) else []
    return {
        "model": audit.models.causal.name,
        "samples": len(finite),
        "quantiles": {str(percent): float(value) for percent, value in zip(_QUANTILES, quantiles, strict=False)},
        "most": audit.rules.most_perplexity,
        "least": audit.rules.least_perplexity,
    }


def _saving(saving: TrainingSaving) -> dict[str, Any]:
    price = saving.price
    return {
        "tokens_share": saving.share,
        "gpu_hours_whole": saving.gpu_hours_whole,
        "gpu_hours_saved": saving.gpu_hours_saved,
        "price_usd_gpu_hour": None if price is None else price.usd_gpu_hour,
        "price_from": None if price is None else price.source,
        "saved_usd": saving.saved_usd,
        "how": saving.how,
    }


def tokens_of(audit: Audit) -> tuple[int, int]:
    """Tokens of all rows, and of the removed ones."""
    removed = audit.reasons != RemovalReason.KEPT
    return _row_weight(audit, np.ones(len(removed), bool))["tokens"], _row_weight(audit, removed)["tokens"]


# --- examples ---------------------------------------------------------------------------------------------------------


def _examples(audit: Audit) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The largest clusters with the row nearest to each centre, and the least similar pairs of near duplicates.

    A wrong threshold is most likely visible in the least similar pairs. The rows are read from the file in one more
    pass, without parsing the other lines.
    """
    labels = audit.clusters.labels
    sizes = np.bincount(labels[labels != NO_CLUSTER])
    largest = [number for number in np.argsort(-sizes, kind="stable")[:_CLUSTERS] if sizes[number]]
    middles = [_most_central(audit, np.flatnonzero(labels == number)) for number in largest]
    near = np.flatnonzero(audit.near != NO_ROW)
    pairs = near[np.argsort(audit.cosines[near], kind="stable")][:_PAIRS].tolist()
    texts = _read(audit, [*middles, *pairs, *audit.near[pairs].tolist()])
    clusters = [
        {"rows": int(sizes[number]), "middle": texts[row]} for number, row in zip(largest, middles, strict=True)
    ]
    near_pairs = [
        {
            "cosine": round(float(audit.cosines[row]), 4),
            "goes": texts[row],
            "stays": texts[int(audit.near[row])],
        }
        for row in pairs
    ]
    return clusters, near_pairs


def _most_central(audit: Audit, members: RowNumbers) -> int:
    sample = members[:: max(1, len(members) // _SAMPLE)]
    vectors = np.asarray(audit.scanned.vectors[sample])
    return int(sample[(vectors @ vectors.mean(axis=0)).argmax()]) if len(sample) else 0


def _read(audit: Audit, rows: Iterable[int]) -> Mapping[int, dict[str, Any]]:
    """Row → its line number in the file (from 1) and the start of its text."""
    numbers = audit.scanned.rows["line"]
    row_by_line = {int(numbers[row]): row for row in rows}
    last = max(row_by_line, default=-1)
    texts: dict[int, dict[str, Any]] = {}
    for line in read_lines(audit.path):
        if line.number in row_by_line:
            text = _row_text(line.content, audit.reading)
            texts[row_by_line[line.number]] = {"line": line.number + 1, "text": text}
        if line.number >= last:
            break
    return texts


def _row_text(content: bytes | None, reading: FieldSelection) -> str:
    try:
        return clean(
            " ".join(read_text_row(parse_json_line(content or b""), reading).text[: 4 * _CHARACTERS].split()),
            _CHARACTERS,
        )
    except UnusableLine:  # the file has just changed
        return ""
