"""What an audit found, as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from gpuwatch.app.dataset.audit import Audit
from gpuwatch.app.dataset.clusters import CROWDED_SHARE
from gpuwatch.app.dataset.duplicates import MIN_WORDING_SIMILARITY
from gpuwatch.app.dataset.examples import AuditExamples
from gpuwatch.app.dataset.removal import RemovalReason
from gpuwatch.app.dataset.saving import TrainingSaving

_QUANTILES = (1, 5, 25, 50, 75, 95, 99)


def report_of(audit: Audit, saving: TrainingSaving, examples: AuditExamples) -> dict[str, Any]:
    """Names and units as everywhere: money ends in `_usd` or `_usd_gpu_hour`."""
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
        "rows": _weight(audit, np.ones(len(removed), bool)),
        "tokens_estimated": audit.models.counter.estimate,
        "cut_rows": int(scanned.rows["cut"].sum()),
        "clusters": _clusters(audit, examples),
        "exact_duplicates": int((audit.reasons == RemovalReason.EXACT).sum()),
        "near_duplicates": int((audit.reasons == RemovalReason.NEAR).sum()),
        "near_threshold": audit.rules.near,
        "near_examples": [msgspec.to_builtins(one) for one in examples.pairs],
        "perplexity": _perplexity(audit),
        "removed": {**_weight(audit, removed), "reasons": _by_reason(audit)},
        "kept": _weight(audit, ~removed),
        "saving": _saving(saving),
    }


def _method(audit: Audit) -> str:
    near = "" if audit.rules.near is None else f"; near duplicates: cosine ≥ {audit.rules.near:g} inside a cluster"
    cut = (
        ""
        if audit.rules.near is None
        else f", and where a text was cut, {MIN_WORDING_SIMILARITY:.0%} of its wording (MinHash)"
    )
    return f"{audit.models.embedder.name}; {audit.clusters.method}{near}{cut}"


def _weight(audit: Audit, which: np.ndarray[Any, Any]) -> dict[str, int]:
    rows = audit.scanned.rows
    weighed = {key: int(rows[key][which].sum(dtype=np.int64)) for key in ("bytes", "tokens")}
    return {"rows": int(which.sum()), **weighed}


def _by_reason(audit: Audit) -> dict[str, dict[str, int]]:
    found = {
        reason: _weight(audit, audit.reasons == reason) for reason in RemovalReason if reason is not RemovalReason.KEPT
    }
    return {reason.text: weight for reason, weight in found.items() if weight["rows"]}


def _clusters(audit: Audit, examples: AuditExamples) -> dict[str, Any]:
    clusters = audit.clusters
    return {
        "method": clusters.method,
        "samples": len(clusters.labels),
        "asked": clusters.wanted,
        "found": len(clusters.sizes),
        "top": clusters.top,
        "top_share": clusters.top_share,
        "top_share_before_joining": clusters.plain_top_share,
        "crowded_from": CROWDED_SHARE,
        "verdict": clusters.verdict,
        "rows_needed": clusters.rows_needed,
        "largest": [msgspec.to_builtins(one) for one in examples.clusters],
    }


def _perplexity(audit: Audit) -> dict[str, Any] | None:
    if audit.perplexities is None or audit.models.causal is None:
        return None
    known = audit.perplexities[np.isfinite(audit.perplexities)]
    quantiles: Iterable[float] = np.quantile(known, [one / 100 for one in _QUANTILES]) if len(known) else []
    return {
        "model": audit.models.causal.name,
        "samples": len(known),
        "quantiles": {str(one): float(value) for one, value in zip(_QUANTILES, quantiles, strict=False)},
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
    """Tokens of all rows, and of those that go."""
    removed = audit.reasons != RemovalReason.KEPT
    return _weight(audit, np.ones(len(removed), bool))["tokens"], _weight(audit, removed)["tokens"]
