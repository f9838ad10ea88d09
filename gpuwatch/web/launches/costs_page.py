"""Costs of a month: what it cost by day, what it will, the budgets, and whether the invoices agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from gpuwatch.app.history.svg_plots import BarDay, stacked_bars
from gpuwatch.app.launches.costs import calibrations, cost_report, month_start
from gpuwatch.app.reader_text import as_datetime, clock_text, day, percent
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.launches.money.launch_costs import midnight, month_of
from gpuwatch.domain.launches.money.month_forecast import LEAST_DAYS
from gpuwatch.domain.launches.money.reclaim import reclaim_sums
from gpuwatch.domain.market.money import MICRO, whole_dollars
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.launch_spec import BudgetPolicy
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.language import mark_text, translate_plural
from gpuwatch.language import translate as _
from gpuwatch.web.components import dollars
from gpuwatch.web.launches.invoice_words import calibration_sentences, charged_sentences
from gpuwatch.web.launches.machine_text import machines_run
from gpuwatch.web.page import Page, View

if TYPE_CHECKING:
    from gpuwatch.app.launches.costs import CostDay, CostReport
    from gpuwatch.domain.launches.money.charge_comparison import InvoiceSummary
    from gpuwatch.domain.launches.money.month_forecast import BudgetUse
    from gpuwatch.settings import Settings

_WAYS = {"watch": mark_text("Watch or job"), "provider": mark_text("Provider"), "gpu": mark_text("GPU")}
_SERIES = 5  # with a colour of their own; the rest is one, "other"
_COLOURS = "abcdef"
_PHONE_DAYS = 14
_AHEAD_DAYS = 2  # of the forecast, on a phone
_DAY = timedelta(days=1)
_MONTHS = (
    mark_text("January"), mark_text("February"), mark_text("March"), mark_text("April"), mark_text("May"),
    mark_text("June"), mark_text("July"), mark_text("August"), mark_text("September"), mark_text("October"),
    mark_text("November"), mark_text("December"),
)  # fmt: skip
_IN_MONTHS = (
    mark_text("in January"), mark_text("in February"), mark_text("in March"), mark_text("in April"),
    mark_text("in May"), mark_text("in June"), mark_text("in July"), mark_text("in August"),
    mark_text("in September"), mark_text("in October"), mark_text("in November"), mark_text("in December"),
)  # fmt: skip


def _show_costs(view: View) -> Mapping[str, Any]:
    by, text = view.choice("by", _WAYS, "watch"), view.query.get("month", "")
    report = cost_report(view.settings, by, month_start(text) if text else None)
    names = [line.key for line in report.lines]
    labels = {name: _name(name, by) for name in names}
    is_current = report.forecast is not None
    return {
        "title": _title(report, view),
        "answer": list(_answer(report)),
        "month": _month_text(report.first),
        "nav": _nav(report, by),
        "ways": [(way, _(label), f"/costs?by={way}&month={report.first:%Y-%m}") for way, label in _WAYS.items()],
        "by": by,
        "heading": _(_WAYS[by]),
        "chart": _chart(report, names, labels) if names or is_current else None,
        "rows": [_row(view.settings, report, line, by, number) for number, line in enumerate(report.lines)],
        "total": report.total,
        "charged": charged_sentences(report),
        "budgets": [_budget(view.settings, report, use) for use in report.budgets],
        "forecast": report.forecast,
        "mean_day_microusd": _mean_day(report),
        "least_days": LEAST_DAYS,
        "calibration": list(calibration_sentences(calibrations(view.settings))),
    }


def _title(report: CostReport, view: View) -> str:
    in_month = _(_IN_MONTHS[report.first.month - 1])
    if report.first.year != view.now.astimezone(UTC).year:
        in_month = _("{in_month} {year}").format(in_month=in_month, year=report.first.year)
    if not report.lines:
        return _("Nothing was rented {in_month}.").format(in_month=in_month)
    return _("{amount} {in_month}").format(amount=dollars(report.total.cost.effective), in_month=in_month)


def _month_text(first: date) -> str:
    return _("{month} {year}").format(month=_(_MONTHS[first.month - 1]), year=first.year)


def _nav(report: CostReport, by: str) -> dict[str, tuple[str, str] | None]:
    """The months before and after: (name, address); None: nothing was rented then, or it has not begun."""
    before, after = (report.first - _DAY).replace(day=1), month_of(report.first)[1].date()
    first = None if report.began is None else report.began.astimezone(UTC).date().replace(day=1)
    has_before = first is not None and first <= before
    return {
        "before": (_month_text(before), f"/costs?by={by}&month={before:%Y-%m}") if has_before else None,
        "after": (_month_text(after), f"/costs?by={by}&month={after:%Y-%m}") if report.forecast is None else None,
    }


# --- the answer -------------------------------------------------------------------------------------------------------


def _answer(report: CostReport) -> Iterator[str]:
    yield from _month_answer(report)
    for one in reclaim_sums(report.reclaims):
        text = translate_plural(
            "To reclaim: {amount} at {provider}, for {count} machine that did not pass its check.",
            "To reclaim: {amount} at {provider}, for {count} machines that did not pass their check.",
            one.machines,
        )
        yield text.format(
            amount=dollars(one.microusd), provider=clean(provider_title(one.provider)), count=one.machines
        )


def _month_answer(report: CostReport) -> Iterator[str]:
    budget = next((use for use in report.budgets if use.watch is None and use.limit_name == "max_usd_month"), None)
    if report.forecast is None:
        if budget is not None:
            yield _of_past_budget(report.total.cost.effective, budget)
        if report.total.charged is not None:
            yield _("The providers charged {amount}.").format(amount=dollars(report.total.charged.total))
        return
    amount = report.forecast.likely_effective
    is_mean = amount > report.forecast.running_effective
    if amount or report.lines:
        yield _by_the_end(amount, is_mean, budget)
    if report.burn.launches:
        yield machines_run(report.burn)
    else:
        yield _("Nothing runs now.")


def _by_the_end(microusd: int, is_mean: bool, budget: BudgetUse | None) -> str:
    share = None if budget is None or not budget.limit else microusd / budget.limit
    if share is None:
        text = (
            _("About <b>{amount}</b> by the end of the month.")
            if is_mean
            else _("About <b>{amount}</b> by the end of the month, if nothing new is rented.")
        )
    elif share > 1:
        text = (
            _("About <b>{amount}</b> by the end of the month, over your budget of {limit}.")
            if is_mean
            else _(
                "About <b>{amount}</b> by the end of the month, if nothing new is rented: over your budget of {limit}."
            )
        )
    else:
        text = (
            _("About <b>{amount}</b> by the end of the month, {share} of your budget of {limit}.")
            if is_mean
            else _(
                "About <b>{amount}</b> by the end of the month, if nothing new is rented: {share} of your budget of"
                " {limit}."
            )
        )
    limit = "" if budget is None else whole_dollars(budget.limit)
    return Markup(text).format(amount=whole_dollars(microusd), limit=limit, share=percent(share))  # noqa: S704 our text


def _of_past_budget(microusd: int, budget: BudgetUse) -> str:
    share, limit = microusd / budget.limit if budget.limit else 0.0, whole_dollars(budget.limit)
    if share > 1:
        return _("More than your monthly budget as it is set now, {limit}.").format(limit=limit)
    return _("{share} of your monthly budget as it is set now, {limit}.").format(share=percent(share), limit=limit)


# --- bars by day ------------------------------------------------------------------------------------------------------


def _chart(report: CostReport, names: Sequence[str], labels: Mapping[str, str]) -> dict[str, Any]:
    shown, rest = list(names[:_SERIES]), list(names[_SERIES:])
    texts = [labels[name] for name in shown] + ([_("other")] if rest else [])
    costs = {line.key: line.cost.effective for line in report.lines}
    totals = [costs[name] for name in shown] + ([sum(costs[name] for name in rest)] if rest else [])
    bars = [_bar(one, shown, rest, texts) for one in report.days]
    limit = next((use.limit for use in report.budgets if use.watch is None and use.limit_name == "max_usd_day"), None)
    limit_usd = None if limit is None else limit / MICRO
    limit_text = "" if limit is None else _("daily budget {limit}").format(limit=whole_dollars(limit))
    label = _("Costs by day; the figures are below")
    today = report.now.astimezone(UTC).date()
    ahead = [one for one in report.days if one.day >= today and one.ahead]
    end = min(len(bars), max(_PHONE_DAYS, sum(one.day <= today for one in report.days) + _AHEAD_DAYS))
    return {
        "legend": list(zip(_COLOURS, texts, totals, strict=False)),
        "has_forecast": bool(ahead),
        "wide": Markup(stacked_bars(bars, texts, limit_usd, limit_text, label)),  # noqa: S704 escaped there
        "phone": Markup(  # noqa: S704 escaped there
            stacked_bars(bars[end - _PHONE_DAYS : end], texts, limit_usd, limit_text, label, width=340, height=190)
        ),
        "days_end": _days_end(report),
        "texts": texts,
        "days": [
            (day(midnight(one.day)), _amounts(one, shown, rest), one.ahead)
            for one in report.days
            if one.costs or one.ahead
        ],
    }


def _amounts(one: CostDay, shown: Sequence[str], rest: Sequence[str]) -> list[int]:
    """Of the series with a colour of their own, and of all others together."""
    amounts = [one.costs.get(name, 0) for name in shown]
    return amounts + ([sum(one.costs.get(name, 0) for name in rest)] if rest else [])


def _bar(one: CostDay, shown: Sequence[str], rest: Sequence[str], texts: Sequence[str]) -> BarDay:
    amounts = _amounts(one, shown, rest)
    parts = [
        _("{name} {amount}").format(name=name, amount=dollars(amount))
        for name, amount in zip(texts, amounts, strict=True)
        if amount
    ]
    if one.ahead:
        parts.append(_("about {amount} to come").format(amount=whole_dollars(one.ahead)))
    title = f"{day(midnight(one.day))}: {', '.join(parts) or dollars(0)}"
    return BarDay(str(one.day.day), [amount / MICRO for amount in amounts], title, one.ahead / MICRO)


def _days_end(report: CostReport) -> str:
    """When the days of the chart end in the configured zone, which changes where its clocks do."""
    ends = [as_datetime(midnight(one.day + _DAY)) for one in report.days]
    times = list(dict.fromkeys(f"{end:%H:%M}" for end in ends))
    if times == ["00:00"]:
        return _("Days end at midnight.")
    if len(times) == 1:
        return _("Days end at {time} (midnight UTC).").format(time=times[0])
    changed = next(end for end in ends if f"{end:%H:%M}" == times[1])
    text = _("Days end at {time} (midnight UTC), from {day} on at {later}.")
    return text.format(time=times[0], day=day(changed), later=times[1])


# --- what it went to --------------------------------------------------------------------------------------------------


def _name(key: str, by: str) -> str:
    """A watch, job, provider or GPU as the page names it."""
    if by == "provider":
        return provider_title(key)
    job = Purpose.of(key).job if by == "watch" else None
    return clean(key) if job is None else _("{job}, job").format(job=clean(job))


def _href(settings: Settings, key: str, by: str) -> str | None:
    """The page of a row; None: it has none, or none any more."""
    if by == "gpu":
        return f"/gpu/{quote(key, safe='')}"
    if by == "provider":
        return None
    job = Purpose.of(key).job
    if job is not None:
        return f"/jobs/{quote(job, safe='')}"
    return f"/watches/{quote(key, safe='')}" if any(watch.name == key for watch in settings.watches) else None


def _row(settings: Settings, report: CostReport, line: InvoiceSummary, by: str, number: int) -> dict[str, Any]:
    whole = report.total.cost.effective
    return {
        "name": _name(line.key, by),
        "href": _href(settings, line.key, by),
        "line": line,
        "share": 100 * line.cost.effective / whole if whole > 0 else 0.0,
        "colour": _COLOURS[min(number, _SERIES)],
    }


# --- budgets ----------------------------------------------------------------------------------------------------------


def _budget(settings: Settings, report: CostReport, use: BudgetUse) -> dict[str, Any]:
    month = _(_MONTHS[report.first.month - 1])
    label = {"max_usd_hour": _("Per hour"), "max_usd_day": _("Today")}.get(use.limit_name, month)
    name = {"max_usd_hour": _("Hourly budget"), "max_usd_day": _("Daily budget")}.get(
        use.limit_name, _("Monthly budget")
    )
    if use.watch is not None:
        label = _("{budget}, {watch}").format(budget=label, watch=clean(_name(use.watch, "watch")))
        name = _("{budget} of {watch}").format(budget=name, watch=clean(_name(use.watch, "watch")))
    share = use.used / use.limit if use.limit else 1.0
    ahead = None if use.forecast_running is None else max(use.forecast_running, use.forecast_mean or 0)
    amounts = _("{used} of {limit}").format(used=dollars(use.used), limit=dollars(use.limit))
    return {
        "label": label,
        "name": name,
        "use": use,
        "ahead": ahead,
        "text": amounts,
        "note": _budget_note(settings, report, use, ahead),
        "tone": "bad" if share >= 0.95 else "warn" if share >= 0.8 else "",
        "warning": _budget_warning(settings, use, share) if share >= 0.8 and use.limit_name != "max_usd_hour" else "",
    }


def _budget_note(settings: Settings, report: CostReport, use: BudgetUse, ahead: int | None) -> str:
    if use.limit_name == "max_usd_hour":
        most = settings.budget.max_instances if use.watch is None else None
        if most is None:
            return ""
        return translate_plural("{count} of at most {most} machine", "{count} of at most {most} machines", most).format(
            count=report.machines, most=most
        )
    if use.ends_at is None or ahead is None:
        return ""
    is_day = use.limit_name == "max_usd_day"
    if ahead <= use.used:
        return _("starts again {time}").format(time=clock_text(use.ends_at)) if is_day else ""
    if is_day:
        text = _("about {amount} by {time}, when it starts again")
        return text.format(amount=whole_dollars(ahead), time=clock_text(use.ends_at))
    return _("about {amount} by the end").format(amount=whole_dollars(ahead))


def _budget_warning(settings: Settings, use: BudgetUse, share: float) -> str:
    budgets = {watch.name: watch.budget for watch in settings.watches}
    budget = settings.budget if use.watch is None else budgets[use.watch]
    if share >= 1:
        return _("{share} used: it rents nothing more").format(share=percent(share))
    if budget.on_reached is BudgetPolicy.STOP:
        return _("{share} used; at the limit it ends what runs").format(share=percent(share))
    return _("{share} used; at the limit it rents nothing").format(share=percent(share))


def _mean_day(report: CostReport) -> int | None:
    ahead = report.forecast
    if ahead is None or ahead.mean_effective is None:
        return None
    return round(report.total.cost.effective / ahead.sample_days)


COSTS_PAGE = Page(name="Costs", path="/costs", template="costs.html", show=_show_costs, order=50)
