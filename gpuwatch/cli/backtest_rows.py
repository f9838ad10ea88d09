"""A backtest for machines: JSON and CSV."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

from gpuwatch.cli.history import escape_formula
from gpuwatch.cli.output import rfc3339

if TYPE_CHECKING:
    from gpuwatch.app.backtest import Backtest
    from gpuwatch.domain.backtest.report import BacktestEvent, BacktestResult
    from gpuwatch.domain.watches.watch import Watch

METHOD = (
    "replay of the recorded looks through the daemon's decisions; an offer stands until a look misses it; launches run "
    "at once and to their end"
)
WAITING = (
    "the same watch, begun at the first look of every hour; median wait by Kaplan and Meier, "
    "95 % interval by a block bootstrap over days"
)


def document(found: Backtest, is_sweep: bool) -> dict[str, Any]:
    """The whole answer."""
    known = [result for _, result in found.results if result is not None]
    one = _step if is_sweep else _watch
    return {
        "method": METHOD,
        "source": found.source,
        "samples": found.looks,
        "prices_read": found.intervals,
        "since": rfc3339(min((result.since for result in known), default=None)),
        "until": rfc3339(max((result.until for result in known), default=None)),
        "deadline_s": found.deadline.total_seconds(),
        "not_judged": {name: list(clauses) for name, clauses in found.ignored.items() if clauses},
        "steps" if is_sweep else "watches": [one(watch, result) for watch, result in found.results],
    }


def print_csv(found: Backtest, is_sweep: bool) -> None:
    """A line for each event, or for each threshold."""
    if is_sweep:
        rows = [_step(watch, result) for watch, result in found.results]
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


def _watch(watch: Watch, result: BacktestResult | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": watch.name,
        "action": watch.action.value,
        "max_price_usd_gpu_hour": float(watch.max_price_usd_gpu_hour),
        "looks": 0 if result is None else result.looks,
    }
    if result is None:
        return found
    first = result.first
    return found | {
        "blind_looks": result.blind,
        "held": result.held,
        "fires": result.fires,
        "launches": result.launches,
        "waited_s": None if first is None else first.waited.total_seconds(),
        **_prices(result),
        "cost_usd": result.cost_usd,
        "budget_refusals": result.budget_refusals,
        "waiting": _waiting(result),
        "events": [event_json(event) for event in result.events],
    }


def _prices(result: BacktestResult) -> dict[str, Any]:
    return {
        "paid_usd_gpu_hour": result.paid_usd_gpu_hour,
        "at_once_usd_gpu_hour": result.at_once_usd_gpu_hour,
        "median_usd_gpu_hour": result.median_usd_gpu_hour,
        "saved_against_at_once": result.saved_against_at_once,
        "saved_against_median": result.saved_against_median,
    }


def _waiting(result: BacktestResult) -> dict[str, Any]:
    waiting = result.waiting
    return {
        "method": WAITING,
        "starts": waiting.starts,
        "samples": waiting.judged,
        "within_deadline": waiting.within_deadline,
        "median_s": waiting.median_s,
        "paid_usd_gpu_hour": waiting.paid_usd_gpu_hour,
        "at_once_usd_gpu_hour": waiting.at_once_usd_gpu_hour,
        "saved": waiting.saved,
        "saved_interval": waiting.interval,
    }


def event_json(event: BacktestEvent) -> dict[str, Any]:
    """One event."""
    offer, later = event.offer, event.cheaper_later
    return {
        "at": rfc3339(event.at),
        "did": event.did,
        "reason": event.reason,
        "provider": offer.provider,
        "offer_id": offer.offer_id,
        "machine_id": offer.machine_id,
        "gpu": offer.gpu,
        "gpu_count": offer.gpu_count,
        "spot": offer.spot,
        "region": offer.region,
        "price_usd_hour": event.usd_hour,
        "price_usd_gpu_hour": event.usd_gpu_hour,
        "waited_s": event.waited.total_seconds(),
        "hours": event.hours,
        "cost_usd": event.cost_usd,
        "cheaper_later": None if later is None else {"at": rfc3339(later.at), "price_usd_gpu_hour": later.usd_gpu_hour},
    }


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    later = row.pop("cheaper_later") or {"at": None, "price_usd_gpu_hour": None}
    return row | {"cheaper_at": later["at"], "cheaper_usd_gpu_hour": later["price_usd_gpu_hour"]}


def _step(watch: Watch, result: BacktestResult | None) -> dict[str, Any]:
    row: dict[str, Any] = {"max_price_usd_gpu_hour": float(watch.max_price_usd_gpu_hour)}
    if result is None:
        return row
    first, waiting = result.first, result.waiting
    return row | {
        "fires": result.fires,
        "launches": result.launches,
        "held": result.held,
        "waited_s": None if first is None else first.waited.total_seconds(),
        **_prices(result),
        "starts": waiting.judged,
        "within_deadline": waiting.within_deadline,
        "median_wait_s": waiting.median_s,
        "mean_paid_usd_gpu_hour": waiting.paid_usd_gpu_hour,
        "mean_at_once_usd_gpu_hour": waiting.at_once_usd_gpu_hour,
        "mean_saved": waiting.saved,
        "mean_saved_low": waiting.interval[0] if waiting.interval else None,
        "mean_saved_high": waiting.interval[1] if waiting.interval else None,
    }
