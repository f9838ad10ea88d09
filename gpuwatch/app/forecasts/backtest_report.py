"""A backtest as text and as JSON: what a watch did, and the value of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.market.money import dollars, per_gpu_hour
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.watch import Action

if TYPE_CHECKING:
    from gpuwatch.app.forecasts.backtest import Backtest
    from gpuwatch.domain.forecasts.backtest.replay_result import BacktestEvent, BacktestResult, WaitStatistics
    from gpuwatch.domain.watches.watch import Watch


def rule_text(watch: Watch) -> str:
    """The rule of a watch: its GPUs, its limit and its action."""
    gpus, max_price = ", ".join(watch.gpu), per_gpu_hour(watch.max_price_usd_gpu_hour, most=6)
    if watch.max_job_cost_usd is not None:
        return f"{gpus}, at most {dollars(watch.max_job_cost_usd)} for the job, {watch.action.value}"
    if watch.unlimited:
        return f"{gpus} at any price, {watch.action.value}"
    return f"{gpus} at or under {max_price}{' (auto)' if watch.auto else ''}, {watch.action.value}"


def backtest_sentence(watch: Watch, result: BacktestResult) -> str:
    """What the watch would have done, in one plain sentence."""
    span = count_text(max(1, round((result.until - result.since) / timedelta(days=1))), "day")
    best = result.at_once_usd_gpu_hour
    if not result.fires:
        price = "" if best is None else f"; renting at once would have cost {per_gpu_hour(best)}"
        return f"{watch.name} would not have fired in {span}{price}."
    saved = result.saved_against_at_once
    against = "" if saved is None else f", {_difference_text(saved)} at once"
    price = "" if result.paid_usd_gpu_hour is None else f" at {per_gpu_hour(result.paid_usd_gpu_hour)}{against}"
    if watch.action is not Action.LAUNCH:
        return f"{watch.name} would have fired {_times(result.fires)} in {span}, first{price}."
    if not result.launches:
        return f"{watch.name} would have fired {_times(result.fires)} in {span} and rented nothing."
    return f"{watch.name} would have rented {_times(result.launches)} in {span} for {dollars(result.cost_usd)}{price}."


def _price(usd: float | None) -> str:
    return "–" if usd is None else per_gpu_hour(usd)


def summary_lines(watch: Watch, result: BacktestResult, backtest: Backtest, zone: ZoneInfo) -> Iterator[str]:
    """What the watch did, what it saved, and what the history does not show."""
    blind = f"; {result.blind} inconclusive" if result.blind else ""
    yield (
        f"{count_text(result.polls, 'poll')} from {time_text(result.since, zone)} to "
        f"{time_text(result.until, zone)}{blind}; "
        f"a matching offer was on sale at {result.held:.0%} of them"
    )
    yield _fires_text(result)
    if result.paid_usd_gpu_hour is not None:
        yield _savings_text(watch, result)
    elif result.at_once_usd_gpu_hour is not None:
        yield (
            f"renting immediately would have cost {per_gpu_hour(result.at_once_usd_gpu_hour)}; "
            f"the median price of the cheapest matching offer was {_price(result.median_usd_gpu_hour)}"
        )
    else:
        yield "no matching offer was on sale at any price"
    if result.budget_refusals:
        reasons = ", ".join(
            f"{reason} at {count_text(polls, 'poll')}" for reason, polls in result.budget_refusals.items()
        )
        yield f"blocked by the budget: {reasons}"
    yield from _waiting(result, backtest.deadline)
    if clauses := backtest.ignored.get(watch.name):
        yield ignored_text(clauses)
    if watch.require:
        yield f"assumed ticked: {', '.join(watch.require)}"


def ignored_text(clauses: Sequence[str]) -> str:
    """A note that these clauses of the watch were ignored."""
    return f"the history cannot evaluate: {', '.join(clauses)}; ignored (--strict rejects them)"


def _fires_text(result: BacktestResult) -> str:
    events = main_events(result)
    reminders = sum(event.is_reminder for event in result.events)
    text = f"it fired {_times(result.fires)}" + (f", {reminders} as reminders" if reminders else "")
    if result.launches:
        text += f"; {count_text(result.launches, 'launch', 'launches')}, {dollars(result.cost_usd)} in all"
    missed = sum(event.cheaper_later is not None for event in events)
    return f"{text}; a cheaper offer followed {missed} of {len(events)}" if events else text


def _savings_text(watch: Watch, result: BacktestResult) -> str:
    at_once, median = result.saved_against_at_once, result.saved_against_median
    paid = "paid" if watch.action is Action.LAUNCH else "first match"
    parts = []
    if at_once is not None:
        parts.append(f"{_difference_text(at_once)} at once ({_price(result.at_once_usd_gpu_hour)})")
    if median is not None:
        parts.append(f"{_difference_text(median)} the median ({_price(result.median_usd_gpu_hour)})")
    return f"{paid} {_price(result.paid_usd_gpu_hour)}: {', '.join(parts)}"


def _waiting(result: BacktestResult, deadline: timedelta) -> Iterator[str]:
    waiting = result.waiting
    span = wait_text(deadline)
    if waiting.within_deadline is None:
        shorter = result.until - result.since < deadline
        cause = (
            f"the data is shorter than the deadline ({span})"
            if shorter
            else f"there was no poll {span} after any start"
        )
        yield f"{cause}: the value of waiting is unknown"
        return
    median = (
        "more than half did not find an offer"
        if waiting.median_s is None
        else f"median wait {wait_text(waiting.median_s)}"
    )
    yield starts_text(waiting)
    yield f"{waiting.within_deadline:.0%} of the counted starts found an offer within {span}, {median}"
    if waiting.saved is None:
        return
    after = f"after {span} the cheapest offer{_missed_wait_text(waiting)}"
    yield (
        f"mean price {_price(waiting.paid_usd_gpu_hour)} ({after}): "
        f"{_difference_text(waiting.saved)} renting immediately ({_price(waiting.at_once_usd_gpu_hour)})"
    )
    if waiting.interval is None:
        yield "too few days to estimate the uncertainty"
    elif waiting.saved:
        low, high = waiting.interval
        chance = "" if waiting.is_shown else "; may be chance"
        yield f"95 % interval of the saving, by block bootstrap over days: {low:.1%} to {high:.1%}{chance}"


def starts_text(waiting: WaitStatistics) -> str:
    """The number of starts, and their outcomes."""
    return (
        f"one start per hour, {waiting.starts} in total: {waiting.counted} counted, {waiting.missed} of them "
        f"with no offer at the deadline; {waiting.unknown} unknown (not polled then)"
    )


def _missed_wait_text(waiting: WaitStatistics) -> str:
    if not waiting.missed:
        return ""
    if not waiting.no_later_offer:
        return "; a miss pays the next offer"
    return f"; a miss pays the next offer, or in {waiting.no_later_offer} cases the highest price, as none followed"


def main_events(result: BacktestResult) -> list[BacktestEvent]:
    """The events without reminders, and without offers beyond the watch's own limits."""
    return [event for event in result.events if not event.is_reminder and not event.is_beyond_limits]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _difference_text(share: float) -> str:
    if round(share, 3) == 0:
        return "the same as"
    return f"{abs(share):.1%} {'less' if share > 0 else 'more'} than"


def time_text(at: datetime, zone: ZoneInfo) -> str:
    """A time, to the minute."""
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M")


def wait_text(wait: timedelta | float) -> str:
    """A duration, rounded to its significant parts."""
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    step = 3600 if seconds >= 2 * 86_400 else 60 if seconds >= 60 else 1
    return format_duration(round(seconds / step) * step)


# --- JSON -------------------------------------------------------------------------------------------------------------

METHOD = (
    # word-check: allow - a value of the JSON
    "replay of the recorded looks through the daemon's decisions; an offer stands until a look misses it; launches run "
    "at once and to their end"
)


WAITING_METHOD = (
    "the same watch, begun at the first look of every hour; at its deadline it takes what there is, a miss pays the "
    "next offer, or the highest price if none came; starts whose deadline nobody saw are unknown; median wait by "
    "Kaplan and Meier, 95 % interval by a block bootstrap over days"
)


def backtest_json(backtest: Backtest, is_sweep: bool) -> dict[str, Any]:
    """JSON of `gpuwatch forecasts backtest`."""
    results = [result for _, result in backtest.results if result is not None]
    one_json = step_json if is_sweep else _watch_json
    return {
        "method": METHOD,
        "source": backtest.source,
        "samples": backtest.polls,
        "prices_read": backtest.intervals,
        "since": rfc3339(min((result.since for result in results), default=None)),
        "until": rfc3339(max((result.until for result in results), default=None)),
        "deadline_s": backtest.deadline.total_seconds(),
        "not_judged": {name: list(clauses) for name, clauses in backtest.ignored.items() if clauses},
        "steps" if is_sweep else "watches": [one_json(watch, result) for watch, result in backtest.results],
    }


def _watch_json(watch: Watch, result: BacktestResult | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": watch.name,
        "action": watch.action.value,
        "max_price_usd_gpu_hour": float(watch.max_price_usd_gpu_hour),
        "looks": 0 if result is None else result.polls,
    }
    if result is None:
        return fields
    first = result.first
    return fields | {
        "sentence": backtest_sentence(watch, result),
        "blind_looks": result.blind,
        "held": result.held,
        "fires": result.fires,
        "launches": result.launches,
        "waited_s": None if first is None else first.waited.total_seconds(),
        **_prices_json(result),
        "cost_usd": result.cost_usd,
        "budget_refusals": result.budget_refusals,
        "waiting": _waiting_json(result),
        "events": [backtest_event_json(event) for event in result.events],
    }


def _prices_json(result: BacktestResult) -> dict[str, Any]:
    return {
        "paid_usd_gpu_hour": result.paid_usd_gpu_hour,
        "at_once_usd_gpu_hour": result.at_once_usd_gpu_hour,
        "median_usd_gpu_hour": result.median_usd_gpu_hour,
        "saved_against_at_once": result.saved_against_at_once,
        "saved_against_median": result.saved_against_median,
    }


def _waiting_json(result: BacktestResult) -> dict[str, Any]:
    waiting = result.waiting
    return {
        "method": WAITING_METHOD,
        "starts": waiting.starts,
        "samples": waiting.counted,
        **_outcomes_json(waiting),
        "within_deadline": waiting.within_deadline,
        "median_s": waiting.median_s,
        "paid_usd_gpu_hour": waiting.paid_usd_gpu_hour,
        "at_once_usd_gpu_hour": waiting.at_once_usd_gpu_hour,
        "saved": waiting.saved,
        "saved_interval": waiting.interval,
    }


def _outcomes_json(waiting: WaitStatistics) -> dict[str, Any]:
    return {
        "bought": waiting.bought,
        "missed": waiting.missed,
        "missed_without_later_offer": waiting.no_later_offer,
        "unknown": waiting.unknown,
    }


def backtest_event_json(event: BacktestEvent) -> dict[str, Any]:
    """JSON of one event."""
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


def step_json(watch: Watch, result: BacktestResult | None) -> dict[str, Any]:
    row: dict[str, Any] = {"max_price_usd_gpu_hour": float(watch.max_price_usd_gpu_hour)}
    if result is None:
        return row
    first, waiting = result.first, result.waiting
    return row | {
        "fires": result.fires,
        "launches": result.launches,
        "held": result.held,
        "waited_s": None if first is None else first.waited.total_seconds(),
        **_prices_json(result),
        "starts": waiting.starts,
        "samples": waiting.counted,
        **_outcomes_json(waiting),
        "within_deadline": waiting.within_deadline,
        "median_wait_s": waiting.median_s,
        "mean_paid_usd_gpu_hour": waiting.paid_usd_gpu_hour,
        "mean_at_once_usd_gpu_hour": waiting.at_once_usd_gpu_hour,
        "mean_saved": waiting.saved,
        "mean_saved_low": waiting.interval[0] if waiting.interval else None,
        "mean_saved_high": waiting.interval[1] if waiting.interval else None,
    }
