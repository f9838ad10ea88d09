"""One row for each watch: its week, its price against the limit, its state, and the one reason that counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.launches.approvals import open_approvals
from gpuwatch.app.reader_text import clock_text, distance, moment_text, percent
from gpuwatch.app.watches import pauses
from gpuwatch.app.watches.why.watch_words import (
    ON_PAGES,
    does_text,
    limit_microusd,
    limit_text,
    wanted_text,
    why_not,
)
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.domain.launches.refusal_words import pause_words
from gpuwatch.domain.market.money import dollars, rate_text, usd
from gpuwatch.domain.watches.watch import Action
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.app.watches.matching_prices import MatchingPrices
    from gpuwatch.app.watches.watch_status import WatchStatus
    from gpuwatch.domain.launches.life.owner_decisions import Approval, Pause
    from gpuwatch.web.page import View

DAYS = 7
_LEAST_HOURS = 3  # with a price: fewer make no line
_ORDER = {"open": 0, "blocked": 1, "under": 2, "waiting": 3, "nodata": 4, "paused": 5}


class WatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the macro `watch_row` shows.

    Attributes:
        values: by hour, for `sparkline`; empty: too little is recorded, as `values_why` says.
        price: what it would pay now, and `limit` what it may pay: per GPU-hour, or the cost of its whole job.
        state: of `chip`.
        beside: the distance, where the chip says something else.
        warns: the first words of `why`, in colour.
    """

    name: str
    group: str | None
    wanted: str
    does: str
    values: tuple[float | None, ...]
    values_why: str
    spark_label: str
    price_microusd: float | None
    limit_microusd: int | None
    gpu_count: int  # 0: of a machine without GPUs, the price is that of the machine
    job_cost: str | None
    limit_text: str
    state: str
    chip_text: str | None
    beside: str
    warns: str
    why: str
    order: tuple[int, float]


def watch_rows(view: View, statuses: Sequence[WatchStatus]) -> list[WatchRow]:
    """The rows of all watches: who waits for you, blocked, under the limit, waiting by distance, paused."""
    settings, now = view.settings, view.now
    facts = _Facts(
        prices={one.watch.name: view.owner.prices.prices(settings, one.watch, DAYS, now) for one in statuses},
        approvals={one.watch: one for one in reversed(open_approvals(settings, now))},
        pauses=list(pauses.pauses(settings).in_force(now)),
        now=now,
    )
    return sorted((_row(status, facts) for status in statuses), key=lambda row: row.order)


class _Facts(msgspec.Struct, frozen=True):
    prices: Mapping[str, MatchingPrices]
    approvals: Mapping[str, Approval]
    pauses: Sequence[Pause]
    now: datetime


def spark_values(prices: MatchingPrices) -> tuple[float | None, ...]:
    """What a sparkline draws: a price, nothing on sale, or not polled."""
    entries = zip(prices.lows, prices.polled, strict=True)
    return tuple(low if low is not None else inf if is_polled else None for low, is_polled in entries)


def spark_label(prices: MatchingPrices, limit: float | None) -> str:
    """What a sparkline says to who does not see it."""
    known, days = prices.known, len(prices.lows) // 24
    if not known:
        return _("Lowest matching price of {days} days: none is recorded").format(days=days)
    text = _("Lowest matching price of {days} days: from {first} to {last}, lowest {lowest}").format(
        days=days, first=rate_text(known[0]), last=rate_text(known[-1]), lowest=rate_text(min(known))
    )
    if limit is not None:
        under = prices.under(limit / 1e6)
        text += "; " + _("at or under the limit in {hours} of {known} polled hours").format(
            hours=under.hours, known=under.known_hours
        )
    missing = len(prices.polled) - prices.known_hours
    return text + "; " + _("not polled for {hours} hours").format(hours=missing) if missing else text


def _row(status: WatchStatus, facts: _Facts) -> WatchRow:
    watch, prices = status.watch, facts.prices[status.watch.name]
    limit, nearest = limit_microusd(watch), status.nearest
    price = None if nearest is None else nearest.price_microusd_gpu_hour
    state = row_state(status)
    warns, why = why_line(status, prices, facts.approvals.get(watch.name), facts.pauses)
    beside = "" if price is None or limit is None else distance(price, limit)
    is_plain = state in {"under", "waiting"}
    over = inf if status.distance is None else status.distance
    return WatchRow(
        name=watch.name,
        group=watch.group,
        wanted=wanted_text(watch),
        does=does_text(watch),
        values=spark_values(prices) if len(prices.known) >= _LEAST_HOURS else (),
        values_why=_("Its line begins after {hours} polled hours.").format(hours=_LEAST_HOURS)
        if prices.known
        else _("Nothing recorded in {days} days").format(days=DAYS),
        spark_label=spark_label(prices, limit),
        price_microusd=price,
        limit_microusd=limit,
        gpu_count=watch.gpu_count_max,
        job_cost=_job_cost(status),
        limit_text=limit_text(status),
        state=state,
        chip_text=(beside or None) if is_plain else None,
        beside="" if is_plain else beside,
        warns=warns,
        why=why,
        order=(_ORDER["blocked" if warns and is_plain else state], over),
    )


def row_state(status: WatchStatus) -> str:
    """Its state, as `chip` names it."""
    if status.blocked is not None and status.blocked.reason is BlockReason.APPROVAL:
        return "open"
    return {"matched": "under", "no data": "nodata"}.get(status.state, status.state)


def _job_cost(status: WatchStatus) -> str | None:
    found = status.nearest
    return None if found is None or found.job_microusd is None else dollars(usd(found.job_microusd))


def why_line(
    status: WatchStatus, prices: MatchingPrices, approval: Approval | None, paused: Sequence[Pause]
) -> tuple[str, str]:
    """Why it does not act, or what it did: the words that stand out, and the sentence."""
    watch, block = status.watch, status.blocked
    if approval is not None:
        text = _("Asked you {time}; the offer waits until {deadline}.")
        return "", text.format(time=moment_text(approval.created_at), deadline=clock_text(approval.deadline))
    if status.state == "paused":
        return "", _sentence(_pause_why(status, paused))
    if status.state == "no data":
        return "", no_data_text(status)
    if block is not None:
        return _("Not renting:"), f"{why_not(watch, block, status.under_since)}."
    if status.matches:
        return "", acting_text(status)
    return "", waiting_text(status, prices)


def _pause_why(status: WatchStatus, paused: Sequence[Pause]) -> str:
    for pause in paused:
        if pause.watch in {None, status.watch.name}:
            return pause_words(pause.until, pause.why, of_watch=pause.watch is not None, times=ON_PAGES)
    if status.blocked is not None:
        return why_not(status.watch, status.blocked)
    return _("several launches in a row failed")  # its circuit breaker, without an offer now


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def no_data_text(status: WatchStatus) -> str:
    """Why nothing is known about its offers."""
    if status.seen_at is None:
        return _("Its providers have not been polled yet.")
    return _("The last complete answer came {time}.").format(time=moment_text(status.seen_at))


def acting_text(status: WatchStatus) -> str:
    """What a watch with matches does, or did."""
    watch = status.watch
    if watch.action is Action.ALERT and status.fired_at is not None:
        alerted = _("Alert sent at {time}.").format(time=clock_text(status.fired_at))
        return f"{alerted} {again_text(status)}".strip()
    if watch.action is Action.ALERT:
        return _("It alerts you with the next poll.")
    if watch.action is Action.ASK:
        return _("It asks you with the next poll.")
    return _("It rents with the next poll.")


def again_text(status: WatchStatus) -> str:
    """When it alerts again."""
    watch, cheaper = status.watch, percent(status.watch.improve_by)
    if status.silenced_until is not None:
        return _("Silenced until {time}.").format(time=clock_text(status.silenced_until))
    if watch.repeat_every_s is None or status.fired_at is None:
        return _("Again when it is {percent} cheaper.").format(percent=cheaper)
    due = status.fired_at + timedelta(seconds=watch.repeat_every_s)
    return _("Again at {time} or {percent} cheaper.").format(time=clock_text(due), percent=cheaper)


def waiting_text(status: WatchStatus, prices: MatchingPrices) -> str:
    """How near its limit was."""
    if status.nearest is None:
        return _("Nothing on sale fits its other conditions.")
    known, limit = prices.known, limit_microusd(status.watch)
    if not known or limit is None:
        return _("Too little is recorded to say how often it was this cheap.")
    lowest = rate_text(min(known), limit)
    under = prices.under(float(status.watch.max_price_usd_gpu_hour))
    if not under.hours:
        return _("Never this cheap in {days} days; the lowest was {price}.").format(days=DAYS, price=lowest)
    text = translate_plural(
        "Under it for {hours} hour in {days} days; the lowest was {price}.",
        "Under it for {hours} hours in {days} days; the lowest was {price}.",
        under.hours,
    )
    return text.format(hours=under.hours, days=DAYS, price=lowest)
