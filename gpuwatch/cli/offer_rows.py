"""Offers as a person and as a program see them: the columns of a table, the keys of the contract's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpuwatch.cli.tables import Column, left, right, text
from gpuwatch.domain.market.marks import marks
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.watches.decide import Match

_MINUTES_FROM_S = 1000  # an age is told in seconds up to here
COLUMNS = (
    left("GPU"),
    right("$/GPU-h"),
    right("listed", drop=2),
    right("$/h", drop=3),
    left("provider"),
    left("place", drop=4),
    right("reliab.", drop=6),
    left("verified", drop=7),
    right("age", drop=8),
    right("offer"),
)
_JOB_AT = 1  # behind the GPU: it is what the watch goes by


def offer_cells(match: Match, now: datetime) -> Sequence[str]:
    """One row of the table, in the order of COLUMNS."""
    offer, price = match.offer, match.price
    each = offer.gpu_count * MICRO
    age_s = max(0, int((now - offer.observed_at).total_seconds()))
    return (
        f"{offer.gpu_count}× {offer.gpu}{' spot' if offer.spot else ''}",
        f"{price.price_microusd_hour / each:.3f}",
        f"{price.listed_microusd_hour / each:.3f}",
        f"{price.price_microusd_hour / MICRO:.3f}",
        offer.provider,
        offer.place or "–",
        "–" if offer.reliability is None else f"{offer.reliability * 100:.1f}%",
        "–" if offer.verification is None else offer.verification.value,
        f"{age_s}s" if age_s < _MINUTES_FROM_S else f"{age_s // 60}m",
        offer.offer_id,
    )


def offers_table(
    found: Sequence[Match], now: datetime, also: Sequence[str] = ()
) -> tuple[Sequence[Column], list[Sequence[str]]]:
    """Columns and rows; what sets offers apart ("listed", "via lambda") has a column if there is any such offer.

    Args:
        also: for each offer, where else it is; empty: nothing is known of that.
    """
    rows = [offer_cells(match, now) for match in found]
    columns: Sequence[Column] = COLUMNS
    if any(match.job_microusd is not None for match in found):
        rows = [(*row[:_JOB_AT], _job_cell(match), *row[_JOB_AT:]) for row, match in zip(rows, found, strict=True)]
        columns = (*COLUMNS[:_JOB_AT], right("$ job"), *COLUMNS[_JOB_AT:])
    notes_at = columns.index(left("provider")) + 1  # what is not plain must be seen on a narrow terminal, too
    elsewhere = also or [""] * len(found)
    notes = [", ".join(filter(None, (*marks(m.offer), text))) for m, text in zip(found, elsewhere, strict=True)]
    if not any(notes):
        return columns, rows
    marked: list[Sequence[str]] = [
        (*row[:notes_at], note, *row[notes_at:]) for row, note in zip(rows, notes, strict=True)
    ]
    return (*columns[:notes_at], text("notes", drop=1), *columns[notes_at:]), marked


def _job_cell(match: Match) -> str:
    return "–" if match.job_microusd is None else f"{match.job_microusd / MICRO:,.2f}"
