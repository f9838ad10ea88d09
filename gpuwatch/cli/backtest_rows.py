"""A backtest for machines: JSON and CSV."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

from gpuwatch.cli.history import escape_formula

if TYPE_CHECKING:
    from gpuwatch.app.backtest import Backtest


def print_csv(found: Backtest, is_sweep: bool) -> None:
    """A line for each event, or for each threshold."""
    from gpuwatch.app.backtest import event_json, step_json

    if is_sweep:
        rows = [step_json(watch, result) for watch, result in found.results]
    else:
        rows = [
            {"watch": watch.name, **_flat(event_json(event))}
            for watch, result in found.results
            for event in (result.events if result else ())
        ]
    if not rows:
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow([escape_formula(value) for value in row.values()])


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    later = row.pop("cheaper_later") or {"at": None, "price_usd_gpu_hour": None}
    return row | {"cheaper_at": later["at"], "cheaper_usd_gpu_hour": later["price_usd_gpu_hour"]}
