"""The pages of watches: all of them, and one: why it does not act, what matches, what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from gpuwatch.app.alerts.alert_days import event_text
from gpuwatch.app.alerts.alerts import stored_events
from gpuwatch.app.launches.launches import all_launches
from gpuwatch.app.reader_text import clock_text, distance, percent, reader_clock, span
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.app.watches.watch_selection import in_group, watch_named
from gpuwatch.app.watches.watch_status import rules_of, watch_statuses
from gpuwatch.app.watches.why.rule_texts import rules_title, under_text
from gpuwatch.app.watches.why.watch_words import (
    count_range,
    does_text,
    limit_microusd,
    limit_text,
    rental_text,
    why_not,
)
from gpuwatch.domain.alerts.alert import AlertKind, Severity
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import hourly_text, rate_text
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.storage.alerts.alert_rows import EventFilter
from gpuwatch.web.components import filled, hardware, machine_without_gpus
from gpuwatch.web.page import SHARED_S, Page, View
from gpuwatch.web.watches.watch_chart import watch_chart
from gpuwatch.web.watches.watch_checks import check_rows, fix_of
from gpuwatch.web.watches.watch_rows import (
    DAYS,
    WatchRow,
    acting_text,
    again_text,
    row_state,
    spark_label,
    spark_values,
    watch_rows,
    why_line,
)

if TYPE_CHECKING:
    from gpuwatch.app.watches.matching_prices import MatchingPrices
    from gpuwatch.app.watches.watch_status import WatchStatus
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.storage.alerts.alert_rows import StoredEvent

_SINCE_DAYS = 14
_PERIODS = {"1d": 1, "7d": 7, "30d": 30}
_MATCHES_SHOWN, _ALERTS_SHOWN, _LAUNCHES_SHOWN, _CHANGES_SHOWN = 8, 6, 3, 8
_CHIPS = {
    LaunchState.INTENDED: "starting", LaunchState.REQUESTED: "starting", LaunchState.UNKNOWN: "searching",
}  # fmt: skip
_OFFER_ALERTS = (AlertKind.MATCH, AlertKind.APPROVAL)


# --- all watches ------------------------------------------------------------------------------------------------------


def _show_watches(view: View) -> Mapping[str, Any]:
    group = view.query.get("group") or None
    statuses = watch_statuses(view.settings, in_group(view.settings, group))
    rows = watch_rows(view, statuses)
    since = view.now - timedelta(days=_SINCE_DAYS)
    alerts = Counter(event.alert.watch for event in _alerts(view, since))
    rented = Counter(launch.watch for launch in all_launches(view.settings) if launch.intended_at >= since)
    return {
        "rows": rows,
        "sections": _by_group(rows, list(view.settings.groups)),
        "group": group,
        "counts": {one.watch.name: (alerts[one.watch.name], rented[one.watch.name]) for one in statuses},
        "days": _SINCE_DAYS,
        "answer": _answer_of_all(statuses),
        "seen_at": max((one.seen_at for one in statuses if one.seen_at is not None), default=None),
        "next_poll_at": min((one.next_poll_at for one in statuses if one.next_poll_at is not None), default=None),
        "watch_days": DAYS,
    }


def _by_group(rows: Sequence[WatchRow], groups: Sequence[str]) -> list[tuple[str | None, list[WatchRow]]]:
    """The rows by group, in the order of the settings; last, or alone, those without one."""
    by_group = [(group, [row for row in rows if row.group == group]) for group in (*groups, None)]
    return [(group, found) for group, found in by_group if found]


def _answer_of_all(statuses: Sequence[WatchStatus]) -> str:
    under = sum(bool(status.matches) for status in statuses)
    blocked = sum(status.blocked is not None for status in statuses)
    if not statuses:
        return ""
    if not under:
        return _("Nothing is at or under a limit now.")
    text = translate_plural(
        "{count} of {all} watches is under its limit.", "{count} of {all} watches are under their limits.", under
    ).format(count=under, all=len(statuses))
    if not blocked:
        return text
    of_blocked = translate_plural(
        "{count} does not act; its row says why.", "{count} do not act; their rows say why.", blocked
    )
    return f"{text} {of_blocked.format(count=blocked)}"


def _alerts(view: View, since: datetime) -> list[StoredEvent]:
    return [
        event
        for event in stored_events(view.settings, EventFilter(since=since, kinds=(), severity=Severity.INFO))
        if event.alert.watch is not None
    ]


WATCHES_PAGE = Page(
    name="Watches", path="/watches", template="watches.html", show=_show_watches, order=20, shared_s=SHARED_S
)


# --- one watch --------------------------------------------------------------------------------------------------------


def _show_watch(view: View) -> Mapping[str, Any]:
    settings, now = view.settings, view.now
    period = view.choice("since", _PERIODS, "7d")
    watch = watch_named(settings, view.path["name"])
    (status,) = watch_statuses(settings, [watch])
    rules = rules_of(settings, status, now)
    prices = view.owner.prices.prices(settings, watch, _PERIODS[period], now)
    drawn = view.owner.prices.day(settings, watch, now) if period == "1d" else prices
    week = prices if period == "7d" else view.owner.prices.prices(settings, watch, DAYS, now)
    launches = [launch for launch in all_launches(settings) if launch.watch == watch.name]
    alerts = [event for event in _alerts(view, now - timedelta(days=30)) if event.alert.watch == watch.name]
    recent = [event for event in alerts if event.alert.created_at >= now - timedelta(days=_SINCE_DAYS)]
    marks = [(one.alert.created_at, "alert") for one in alerts if one.alert.kind in _OFFER_ALERTS]
    marks += [(launch.intended_at, "rent") for launch in launches]
    limit = limit_microusd(status.watch)
    return {
        "status": status, "watch": status.watch, "name": watch.name, "period": period, "periods": list(_PERIODS),
        "state": row_state(status), "chip_text": _chip_text(status), "answer": _answer(view, status, week),
        "chart_data": watch_chart(drawn, limit, marks, now), "prices": prices,
        "figures": drawn.parts(reader_clock().zone, by_hour=period == "1d"),
        "spark": spark_values(drawn), "spark_label": spark_label(prices, limit), "limit": limit,
        "unrecorded": ", ".join(prices.unrecorded),
        "under": under_text(prices, status),
        "checks": check_rows(status, rules), "checks_title": rules_title(status, rules), "fix": fix_of(status, rules),
        "matches": [_match_row(match, limit) for match in status.matches[:_MATCHES_SHOWN]],
        "matches_title": _matches_title(status), "more_matches": max(0, len(status.matches) - _MATCHES_SHOWN),
        "rejected": _rejected_text(status),
        "past": _past(view, status.watch),
        "alerts": [_alert_row(event) for event in reversed(recent[-_ALERTS_SHOWN:])], "alerts_count": len(recent),
        "alert_days": _SINCE_DAYS,
        "does": _does_markup(status), "facts": _facts(status.watch),
        "image": status.watch.launch.image if status.watch.launch is not None else "",
        "launches": [_launch_row(launch, now) for launch in launches[:_LAUNCHES_SHOWN]],
        "launch_count": len(launches), "launch_cost": sum(cost_microusd(launch, now) for launch in launches),
        "more_launches": max(0, len(launches) - _LAUNCHES_SHOWN),
    }  # fmt: skip


def _past(view: View, watch: Watch) -> dict[str, Any]:
    """What it decided lately, and the answer for the time that was asked."""
    from gpuwatch.app.watches.why import past_decisions  # noqa: PLC0415

    asked, answer, is_wrong = view.query.get("why", "").strip()[:40], None, False
    if asked:
        try:
            span = past_decisions.past_span(asked, view.now, view.settings.timezone)
            answer = past_decisions.why_at(view.settings, watch, *span)
        except UsageError:
            is_wrong = True
    changes = past_decisions.recent_decisions(view.settings, watch, view.now)
    return {
        "asked": asked, "answer": answer, "is_wrong": is_wrong,
        "changes": [
            (one.at, past_decisions.decision_words(watch, one), past_decisions.has_acted(one))
            for one in changes[:_CHANGES_SHOWN]
        ],
    }  # fmt: skip


def _launch_row(launch: Launch, now: datetime) -> tuple[Launch, str, int]:
    return launch, _CHIPS.get(launch.state, launch.state), cost_microusd(launch, now)


def _chip_text(status: WatchStatus) -> str | None:
    limit = limit_microusd(status.watch)
    if row_state(status) not in {"under", "waiting"} or status.nearest is None or limit is None:
        return None
    return distance(status.nearest.price_microusd_gpu_hour, limit)


def _answer(view: View, status: WatchStatus, week: MatchingPrices) -> Markup:
    """The first sentence: why it does not act, or what it does."""
    from gpuwatch.app.launches.approvals import open_approvals  # noqa: PLC0415
    from gpuwatch.app.watches import pauses  # noqa: PLC0415

    watch, block = status.watch, status.blocked
    approval = next((one for one in open_approvals(view.settings, view.now) if one.watch == watch.name), None)
    if block is not None and approval is None and status.state != "paused":
        text = _("<b>It does not rent, because {why}.</b> Otherwise it would take {offer}.")
        best = status.matches[0]
        count = best.offer.gpu_count
        offer = hardware(best.offer.gpu, count) if count else _("a machine without GPUs")
        rate = rate_text(best.price.price_microusd_hour)
        offer = _("{offer} at {rate}/h").format(offer=offer, rate=rate)
        return filled(text, why=why_not(watch, block, status.under_since), offer=offer)
    if status.state == "waiting" and status.distance is not None and week.known:
        text = _("<b>Waiting: {percent} over your limit;</b> the lowest in {days} days was {price}.")
        lowest = rate_text(min(week.known), limit_microusd(watch))
        return filled(text, percent=percent(status.distance), days=DAYS, price=lowest)
    if status.state == "matched" and approval is None:
        return _acting_answer(status)
    _warns, why = why_line(status, week, approval, list(pauses.pauses(view.settings).in_force(view.now)))
    return Markup("<b>{}</b>").format(why)


def _acting_answer(status: WatchStatus) -> Markup:
    watch = status.watch
    if watch.action is Action.ALERT and status.fired_at is not None:
        text = _("<b>Alerted you at {time}.</b> {again}")
        return filled(text, time=clock_text(status.fired_at), again=again_text(status))
    if watch.action is Action.LAUNCH:
        return Markup("<b>{}</b>").format(_("It rents as soon as the next poll finds the offer again."))
    return Markup("<b>{}</b>").format(acting_text(status))


def _matches_title(status: WatchStatus) -> str:
    count = len(status.matches)
    if not count:
        return _("No offer matches now")
    return translate_plural("{count} offer matches now", "{count} offers match now", count).format(count=count)


def _match_row(match: Any, limit: int | None) -> dict[str, Any]:
    offer, each = match.offer, match.price_microusd_gpu_hour
    traffic = match.price.traffic_microusd_hour
    moved = _("{rate} of it traffic").format(rate=hourly_text(traffic)) if traffic else None
    where = " · ".join(filter(None, (provider_title(offer.provider), offer.place, moved)))
    under = percent(1 - each / limit) if limit else ""
    return {
        "what": hardware(offer.gpu, offer.gpu_count) if offer.gpu_count else machine_without_gpus(offer),
        "gpu_count": offer.gpu_count, "spot": offer.spot, "each": each,
        "where": where,
        "all": match.price.price_microusd_hour, "under": under,
    }  # fmt: skip


def _rejected_text(status: WatchStatus) -> str:
    total = sum(status.rejected.values())
    if not total:
        return ""
    words = {
        "verified": _("{count} unverified"),
        "min_reliability": _("{count} less reliable"),
        "regions": _("{count} elsewhere"),
        "gpu_count": _("{count} of another size"),
        "spot": _("{count} of another rental type"),
        "min_vram_gib": _("{count} with less memory"),
        "providers": _("{count} at other providers"),
        "kind": _("{count} only as a list price"),
    }
    other = _("{count} for another reason")
    parts = [words.get(clause, other).format(count=count) for clause, count in Counter(status.rejected).most_common()]
    text = translate_plural(
        "{count} more {gpus} offer is at or under the limit but does not match: {reasons}.",
        "{count} more {gpus} offers are at or under the limit but do not match: {reasons}.",
        total,
    )
    return text.format(count=total, gpus=", ".join(status.watch.gpu), reasons=", ".join(parts))


def _alert_row(event: StoredEvent) -> dict[str, Any]:
    alert = event.alert
    return {
        "at": alert.created_at, "text": event_text(alert),
        "channels": [
            (one.channel, one.state == "sent", None if one.at is None else (one.at - alert.created_at).total_seconds())
            for one in event.outcomes
        ],
    }  # fmt: skip


def _does_markup(status: WatchStatus) -> Markup:
    watch = status.watch
    if watch.max_job_cost_usd is not None or watch.unlimited:
        text, limit = _("<b>{does}:</b> {count}× {gpus}, limit {limit}."), limit_text(status)
    else:
        text = _("<b>{does}:</b> {count}× {gpus} at <b>{limit}/GPU-h</b> or less, commission included.")
        if not watch.gpu_count_max:
            text = _("<b>{does}:</b> a machine without GPUs at <b>{limit}/h</b> or less, commission included.")
        limit = rate_text(limit_microusd(watch) or 0)
    gpus = ", ".join(watch.gpu)
    return filled(text, does=does_text(watch), count=count_range(watch), gpus=gpus, limit=limit)


def _facts(watch: Watch) -> list[tuple[str, str]]:
    hosts = [_("verified")] if watch.verified else []
    if watch.min_reliability is not None:
        hosts.append(_("at least {percent} reliable").format(percent=percent(watch.min_reliability)))
    hosts.append(", ".join(watch.regions) or _("anywhere"))
    disk = "" if watch.disk_gb is None else _("{size} GB disk").format(size=f"{watch.disk_gb:g}")
    facts = [
        (_("Hosts"), ", ".join(hosts)),
        (_("Rental"), ", ".join(filter(None, (rental_text(watch), disk)))),
        (_("When"), ", ".join(watch.active) or _("always")),
    ]
    launch = watch.launch
    if launch is not None and watch.action is not Action.ALERT:
        most = _("{count} in total").format(count=launch.max_total) if launch.max_total else _("any number in total")
        facts.append((_("How many"), _("{count} at a time, {total}").format(count=launch.max_active, total=most)))
        runtime = launch.max_runtime_s
        ends = _("after {time}").format(time=span(runtime)) if runtime is not None else _("when you stop it")
        facts.append((_("Ends"), ends))
    return facts


WATCH_PAGE = Page(
    name="Watch",
    path="/watches/{name}",
    template="watch.html",
    show=_show_watch,
    order=29,
    scripts=("vendor/uplot/uPlot.iife.min.js", "charts.js"),
)
