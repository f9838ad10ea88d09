"""The contents of a GPU's page. Loads numpy: 12 MB that a daemon needs only once the page is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from gpuwatch import providers
from gpuwatch.app.forecasts.advise import advice_on
from gpuwatch.app.forecasts.calendar import percent_above_median
from gpuwatch.app.history.svg_charts import shade_of
from gpuwatch.app.history.svg_plots import SurvivalStep
from gpuwatch.app.market.current_offers import current_offers, is_old
from gpuwatch.app.market.gpu_past import GpuPast, gpu_past, lifetime_steps, share_seen, with_price_of_now
from gpuwatch.app.market.market_by_gpu import WatchedPrices
from gpuwatch.app.reader_text import span, weekday, with_unit
from gpuwatch.app.watches.current_limits import known_limits
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.domain.forecasts.week_effects import Calendar, calendar_of, default_parts
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.market.figure_text import decimal_text, percent_text
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.market.offer import OfferKind, clean, is_slice
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.engine.market.browse import offer_filter, sorted_offers
from gpuwatch.errors import StoreNotReady
from gpuwatch.language import translate as _
from gpuwatch.web.market.gpu_chart import PERIODS, price_chart_of
from gpuwatch.web.market.gpu_words import GpuAnswer, advice_answer, bold, calendar_answer, lasting_answer, turnover_text
from gpuwatch.web.market.market_filters import SPOTS
from gpuwatch.web.market.offer_rows import offer_rows
from gpuwatch.web.page import View

if TYPE_CHECKING:
    from gpuwatch.domain.history.gpu_status import GpuStatus

_CHEAPEST = 5
_DEADLINE_HOURS = 24
_CHANGE_HOURS = 7 * 24


def gpu_prices(view: View) -> Mapping[str, Any]:
    """Return the values of its template. Raises UsageError (no such GPU), StoreError."""
    gpu = view.path["name"]
    since, spot_text = view.choice("since", PERIODS, "7d"), view.choice("spot", SPOTS, "no")
    verified = view.choice("verified", ("yes",), "")
    spot = SPOTS[spot_text]
    scope = MarketFilter(spot=spot, verified=bool(verified))
    watched = WatchedPrices(known_limits(view.settings, view.now), all_commissions(view.settings), view.now)
    past, calendar = _past(view, gpu, scope)
    watches = [watch for name in past.gpus for watch in watched.of_gpu(name, spot=spot)]
    wanted = offer_filter([], spot=spot_text, verified=scope.verified)
    current = current_offers(view.settings, replace(wanted, gpu_names=past.gpus))
    mine = current.matches
    found = sorted_offers(mine, "gpu-price")
    shown = offer_rows(view, watched, current)(found[:_CHEAPEST])
    live = [one.primary for one in found if one.primary.offer.kind is not OfferKind.LISTED]
    whole = [match for match in live if not is_slice(match.offer)]
    now = min((match.price_microusd_gpu_hour for match in whole), default=None)
    specs = gpu_specs().get(past.gpus[0]) if len(past.gpus) == 1 else None
    return {
        "gpu": clean(gpu),
        "memory_gib": None if specs is None else specs.memory_gib,
        "since": since,
        "spot": spot_text,
        "verified": verified,
        "chosen": {"since": since, "spot": spot_text, "verified": verified},
        "periods": list(PERIODS),
        "chart_data": price_chart_of(view, gpu, since, scope, watches),
        "limit": max((float(watch.max_price_usd_gpu_hour) * MICRO for watch in watches), default=None),
        "answer": bold(_advice(view, past, now, is_old=is_old(current.as_of, view.now))),
        "now_price": now,
        "cheapest": shown[0] if shown else None,
        "rank": past.rank,
        "changes": _changes(past.statuses, now),
        "on_sale": len(found),
        "sellers": len({match.offer.provider for match in mine}),
        "all_sellers": len(current.sellers),
        "lasting": _lasting(view, past.statuses),
        "turnover": turnover_text([one.turnover for one in past.statuses]),
        "calendar": _calendar(view, calendar),
        "offers": shown,
        "as_of": current.as_of,
        "is_old": is_old(current.as_of, view.now),
        "title_of": provider_title,
    }


def _past(view: View, gpu: str, scope: MarketFilter) -> tuple[GpuPast, Calendar]:
    """The past and its hours of the week, at most a minute old."""

    def read() -> tuple[GpuPast, Calendar]:
        past = gpu_past(view.settings, gpu, scope, view.now)
        return past, calendar_of(past.series, ZoneInfo(view.settings.timezone), default_parts())

    found: tuple[GpuPast, Calendar] = view.owner.gpu_pasts.reading((gpu, scope), view.settings, view.now, read)
    return found


def _advice(view: View, past: GpuPast, now: float | None, *, is_old: bool) -> GpuAnswer:
    try:
        series = with_price_of_now(past.series, now)
        advice, _why = advice_on(view.settings, series, _DEADLINE_HOURS, view.now)
    except StoreNotReady:
        advice = None
    return advice_answer(advice, past.series, now, is_old=is_old)


def _changes(statuses: Sequence[GpuStatus], now: float | None) -> list[tuple[int, str]]:
    """Days back → how much the price of the cheapest model has changed."""
    known = [one for one in statuses if one.now is not None]
    if not known or now is None:
        return []
    cheapest = min(known, key=lambda one: one.now or 0)
    return [
        (hours // 24, with_unit(percent_text(change, 1, "+").replace("-", "−")))
        for hours, change in cheapest.changes.items()
        if change is not None and hours <= _CHANGE_HOURS
    ]


def _lasting(view: View, statuses: Sequence[GpuStatus]) -> dict[str, Any] | None:
    """How long offers at or under the median price last; None: too few to tell."""
    known = [one for one in statuses if one.is_lifetime_known]
    if not known:
        return None
    status = max(known, key=lambda one: one.lifetime.samples)
    curve, median_s = status.lifetime, status.lifetime.median_s
    every_s = min((one.poll_every_s for one in view.settings.providers.values()), default=None) or _default_every_s()
    until_s = min(max(curve.times_s, default=curve.longest_s), 4 * median_s if median_s else curve.longest_s)
    steps = [
        SurvivalStep(one.seconds / HOUR_S, one.share, one.low, one.high)
        for one in lifetime_steps(curve)
        if one.seconds <= until_s
    ]
    note = "" if median_s is None else _("half are gone after {time}").format(time=span(median_s))
    return {
        "gpu": status.gpu,
        "under": status.under,
        "median_s": median_s,
        "samples": curve.samples,
        "steps": steps,
        "until_hours": until_s / HOUR_S,
        "median_hours": None if median_s is None else median_s / HOUR_S,
        "note": note,
        "label": note or _("More than half outlasted the observation"),
        "answer": bold(lasting_answer(curve, every_s, share_seen(curve, every_s))),
    }


def _default_every_s() -> float:
    return min(providers.info(name).poll_every_s for name in providers.names())


def _calendar(view: View, calendar: Calendar) -> dict[str, Any] | None:
    """The week by the hour. In a zone with half hours an hour of the map begins with that of UTC within it."""
    zone = ZoneInfo(view.settings.timezone)
    if calendar.since is None or calendar.until is None:
        return None
    answer, has_effect = calendar_answer(calendar)
    cells = {(cell.weekday, cell.hour): percent_above_median(cell, calendar) for cell in calendar.cells}
    monday = view.now.astimezone(zone) - timedelta(days=view.now.astimezone(zone).weekday())
    return {
        "answer": bold(answer),
        "has_effect": has_effect,
        "days": round((calendar.until - calendar.since) / timedelta(days=1)),
        "rows": [
            (weekday(monday + timedelta(days=number)), [_cell(cells.get((number, hour))) for hour in range(24)])
            for number in range(7)
        ],
    }


def _cell(percent: float | None) -> tuple[str, str]:
    """Return text and shade of one hour: the shade is a class, because the policy forbids inline styles."""
    if percent is None:
        return "·", "none"
    return with_unit(decimal_text(percent, 0, "+").replace("-", "−")), shade_of(percent)
