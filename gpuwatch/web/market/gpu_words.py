"""The sentences of a GPU's page: buy or wait, when it is cheap, how long offers last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from gpuwatch.app.reader_text import percent, span, with_unit
from gpuwatch.domain.forecasts.advice import BuyVerdict
from gpuwatch.domain.forecasts.week_effects import CalendarEffect, EffectVerdict
from gpuwatch.domain.market.figure_text import decimal_text
from gpuwatch.domain.market.money import MICRO, rate_text
from gpuwatch.language import mark_text, translate_plural
from gpuwatch.language import translate as _

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.advice import Advice
    from gpuwatch.domain.forecasts.week_effects import Calendar
    from gpuwatch.domain.history.gpu_status import Turnover
    from gpuwatch.domain.history.nonparametric import SurvivalCurve
    from gpuwatch.domain.history.price_series import PriceSeries

LEAST_HOURS = 72  # polled; with fewer, advice says how many are missing
_LONG_ENOUGH = 0.95  # of the offers are seen: a watch catches them
_PARTS = {
    "off-peak": (mark_text("Nights and weekends are {percent} cheaper"), mark_text("Nights and weekends")),
    "night": (mark_text("Weekday nights are {percent} cheaper"), mark_text("Weekday nights")),
    "weekend": (mark_text("Weekends are {percent} cheaper"), mark_text("Weekends")),
}
_DEARER = {
    "off-peak": mark_text("Nights and weekends are {percent} dearer"),
    "night": mark_text("Weekday nights are {percent} dearer"),
    "weekend": mark_text("Weekends are {percent} dearer"),
}


class GpuAnswer(NamedTuple):
    """What to know first, and why."""

    first: str
    rest: str = ""


def advice_answer(advice: Advice | None, series: PriceSeries, now: float | None, *, is_old: bool) -> GpuAnswer:
    """Buy now, wait, or the owner's call; with the evidence in one sentence.

    Args:
        now: the cheapest price, in micro-dollars; None: nothing is on sale.
        is_old: that was the case some time ago, and nothing is known of now.
    """
    if is_old:
        return GpuAnswer(_("The price of now is not known."), _("Advice needs a poll that is not old."))
    if advice is None:
        if series.known < LEAST_HOURS:
            text = _("Too little history for advice: {known} of {needed} hours.")
            return GpuAnswer(text.format(known=series.known, needed=LEAST_HOURS))
        return GpuAnswer(_("Too little history for advice."), _("The prices of 30 days have too many gaps."))
    if now is None:
        return GpuAnswer(_("Nothing is on sale."), _evidence(advice))
    price = rate_text(now, None if advice.limit_usd is None else advice.limit_usd * MICRO)
    limit = "" if advice.limit_usd is None else rate_text(advice.limit_usd * MICRO, now)
    if advice.verdict is BuyVerdict.BUY_NOW:
        if not limit:
            reason = _("Waiting until tomorrow has hardly ever found a better price than {price}.").format(price=price)
        elif now <= (advice.limit_usd or 0.0) * MICRO:
            text = _("At {price} it is under {limit}, the price worth holding out for until tomorrow.")
            reason = text.format(price=price, limit=limit)
        else:
            text = _("It costs {price}, and waiting until tomorrow rarely pays off.")
            reason = text.format(price=rate_text(now))  # the limit is not said
        return GpuAnswer(_("Buy now."), f"{reason} {_evidence(advice)}")
    if not limit:
        reason = _("It costs {price} now.").format(price=price)
    else:
        text = _("It costs {price} now; {limit} is worth holding out for until tomorrow.")
        reason = text.format(price=price, limit=limit)
    first = _("Wait.") if advice.verdict is BuyVerdict.WAIT else _("Your call.")
    return GpuAnswer(first, f"{reason} {_evidence(advice)}")


def _evidence(advice: Advice) -> str:
    saving = advice.saving
    if saving is None:
        return _("Too few similar cases to say what waiting saved.")
    if round(100 * saving.share) > 0:
        text = translate_plural(
            "Waiting a day saved {percent} on average in {count} similar case ({low} to {high} in a single one).",
            "Waiting a day saved {percent} on average in {count} similar cases ({low} to {high} in a single one).",
            saving.hours,
        )
    else:
        text = translate_plural(
            "Waiting a day saved nothing on average in {count} similar case.",
            "Waiting a day saved nothing on average in {count} similar cases.",
            saving.hours,
        )
    low, high = percent(saving.low).replace("-", "−"), percent(saving.high).replace("-", "−")
    return text.format(percent=percent(saving.share), count=saving.hours, low=low, high=high)


def calendar_answer(calendar: Calendar) -> tuple[GpuAnswer, bool]:
    """When it is cheap, and whether an effect is shown: without one, colours would claim what the test denies."""
    proven = [effect for effect in calendar.effects if effect.verdict in {EffectVerdict.CHEAPER, EffectVerdict.DEARER}]
    # nights and weekends together say less than each of them
    shown = [effect for effect in proven if effect.name != "off-peak"] or proven
    rest = " ".join(_untold(calendar, shown))
    if shown:
        first, *others = (_effect(effect) for effect in shown)
        return GpuAnswer(
            first.first, " ".join([first.rest, *(f"{one.first} {one.rest}" for one in others), rest])
        ), True
    tested = any(effect.verdict is EffectVerdict.NO_EFFECT for effect in (*calendar.effects, calendar.any_hour))
    if tested:
        return GpuAnswer(_("No hour is shown to be cheaper."), rest), False
    return GpuAnswer(_("Too little data to tell when it is cheap."), rest), False


def _effect(effect: CalendarEffect) -> GpuAnswer:
    is_cheaper = effect.verdict is EffectVerdict.CHEAPER
    words = (
        _PARTS.get(effect.name, (mark_text("{percent} cheaper"), ""))[0]
        if is_cheaper
        else _DEARER.get(effect.name, mark_text("{percent} dearer"))
    )
    sign = 1 if is_cheaper else -1
    low, high = sorted((sign * (effect.low_percent or 0.0), sign * (effect.high_percent or 0.0)))
    size = with_unit(f"{decimal_text(sign * (effect.cheaper_percent or 0.0), 0)} %")
    text = _("than weekdays from 8 to 22: between {low} and {high} %, more than chance explains.")
    rest = text.format(low=decimal_text(low), high=decimal_text(high))
    return GpuAnswer(_(words).format(percent=size), rest)


def _untold(calendar: Calendar, shown: list[CalendarEffect]) -> Iterator[str]:
    for effect in calendar.effects:
        if effect not in shown and effect.name != "off-peak" and effect.name in _PARTS:
            name = _(_PARTS[effect.name][1])
            if effect.verdict is EffectVerdict.NOT_ENOUGH:
                text = _("{part}: not enough data; {needed} complete ones are needed, there are {count}.")
                yield text.format(part=name, needed=effect.needed, count=effect.samples)
            elif effect.verdict is EffectVerdict.NO_EFFECT:
                yield _("{part}: no effect.").format(part=name)


def lasting_answer(curve: SurvivalCurve, every_s: float, seen: float) -> GpuAnswer:
    """Whether offers last long enough to be caught."""
    share = decimal_text(100 * seen, 0)
    text = _("Polling every {time} sees about {percent} % of them.")
    rest = text.format(time=span(every_s), percent=share)
    if seen >= _LONG_ENOUGH:
        return GpuAnswer(_("Long enough to catch."), rest)
    return GpuAnswer(_("Gone before most polls.") if seen < 0.5 else _("Some are gone before a poll."), rest)


def turnover_text(turnovers: Sequence[Turnover]) -> str:
    """How the offers of the model with the most come and go; empty: it is not known."""
    found = max(turnovers, key=lambda one: one.offers, default=None)
    if found is None:
        return ""
    parts = []
    if found.away is not None:
        parts.append(_("Rented, or off the market, {percent} of the time.").format(percent=percent(found.away)))
    if found.new_a_day is not None and found.gone_a_day is not None:
        new, gone = (decimal_text(one) for one in (found.new_a_day, found.gone_a_day))
        parts.append(_("{new} new and {gone} gone a day.").format(new=new, gone=gone))
    return " ".join(parts)


def bold(answer: GpuAnswer) -> Markup:
    """The answer as a page shows it."""
    return Markup("<b>{}</b> {}").format(answer.first, answer.rest)
