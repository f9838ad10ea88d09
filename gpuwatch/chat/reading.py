"""Actions that only read: launches, watches, offers, costs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.app.alerts import silences, stored_events
from gpuwatch.app.approvals import recent_approvals
from gpuwatch.app.costs import cost_report
from gpuwatch.app.current_offers import current_offers
from gpuwatch.app.history_picture import price_history_png
from gpuwatch.app.launches import all_launches
from gpuwatch.app.pauses import pause_lines, pauses
from gpuwatch.app.price_history import PriceHistoryRequest, PriceHistoryResult, price_history
from gpuwatch.app.provider_status import provider_statuses
from gpuwatch.chat.replies import ChatContext, ChatReply, listing, rows_of, said
from gpuwatch.domain.analysis.market_history import MarketFilter
from gpuwatch.domain.launches.approval import ApprovalState
from gpuwatch.domain.launches.billing import cost_microusd
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.obligation import latest_end
from gpuwatch.domain.market.money import dollars, price_text
from gpuwatch.domain.market.pricing import MICRO, usd
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts import format_moment
from gpuwatch.engine.browse import offer_filter
from gpuwatch.engine.signed_buttons import ButtonAction, subject_key
from gpuwatch.errors import UsageError
from gpuwatch.ports.buttons import MessageButton
from gpuwatch.storage.events import EventFilter

_OFFERS_SHOWN = 8
_LAUNCHES_SHOWN = 12
_ENDED_SHOWN_FOR = timedelta(days=1)
_HISTORY_DAYS = 30
_WHY_BACK = timedelta(days=9)


def status(context: ChatContext, argument: str) -> ChatReply:
    """Show providers, pending approvals, launches and their cost per hour."""
    settings, now = context.settings, context.now
    zone = ZoneInfo(settings.timezone)
    report = cost_report(settings, "provider")
    alive = [one for one in all_launches(settings) if not one.is_over]
    asked = [one for one in recent_approvals(settings) if one.state_at(now) is ApprovalState.OPEN]
    mode = "dry run: gpuwatch rents nothing" if settings.dry_run else "renting is on"
    items = [("gpuwatch", f": {_count(len(settings.watches), 'watch', 'watches')}, {mode}")]
    for one in provider_statuses(settings):
        if one.is_on:
            newest = one.health.complete_at
            when = "no complete answer yet" if newest is None else f"last complete answer {format_moment(newest, zone)}"
            blind_since = one.health.blind_since
            health = "" if blind_since is None else f"not answering since {format_moment(blind_since, zone)}; "
            items.append((one.provider, f": {health}{when}"))
    items.append(("Launches", f": {len(alive)} active, {dollars(usd(report.burn.effective))} per hour"))
    if asked:
        items.append(("Approvals", f": {len(asked)} pending: /approve"))
    items += [("Paused", f": {line}") for line in pause_lines(pauses(settings), now, settings.timezone)]
    items += [("Silenced", f": {one.watch} until {format_moment(one.until, zone)}") for one in silences(settings)]
    if settings.rescue:
        items.append(("Rescue mode", f": {settings.rescue}"))
    return listing(f"Status at {format_moment(now, zone)}", items)


def watches(context: ChatContext, argument: str) -> ChatReply:
    """List every watch with its limit and action."""
    settings = context.settings
    items = [(one.name, f": {_wants(one)}; {one.action.value}") for one in settings.watches]
    if not items:
        return said("No watch is defined in the settings.")
    buttons = [
        context.button(f"Silence {one.name}", ButtonAction.SILENCE, subject_key(one.name)) for one in settings.watches
    ]
    return listing(_count(len(items), "watch", "watches"), items, rows_of(buttons, 2))


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _wants(watch: Watch) -> str:
    gpus = ", ".join(sorted(watch.gpu_names)[:4]) or "any GPU"
    more = len(watch.gpu_names) - 4
    beside = f" and {more} more" if more > 0 else ""
    if watch.unlimited:
        return f"{gpus}{beside} by its price history"
    return f"{gpus}{beside} at or under ${price_text(watch.max_price_usd_gpu_hour, most=6)} per GPU-hour"


def offers(context: ChatContext, argument: str) -> ChatReply:
    """List the cheapest offers of a GPU, as last polled."""
    if not argument:
        return said("Which GPU? For example: /offers H100", _gpu_rows(context, ButtonAction.OFFERS))
    found = current_offers(context.settings, offer_filter((argument,), spot="any"))
    if found.as_of is None:
        return said(f"Cannot tell: {argument} has not been polled yet. Is this GPU in a watch or under [record]?")
    at = format_moment(found.as_of, ZoneInfo(context.settings.timezone))
    cheapest = sorted(found.offers, key=lambda one: one[1].price_microusd_hour / one[0].gpu_count)
    items = [
        (
            f"${price_text(usd(price.price_microusd_hour) / offer.gpu_count)}",
            f" per GPU-hour · {offer.gpu} × {offer.gpu_count}{', spot' if offer.spot else ''} · "
            f"{offer.place or 'place unknown'} · {offer.provider}, offer {offer.offer_id}",
        )
        for offer, price in cheapest[:_OFFERS_SHOWN]
    ]
    if not items:
        return said(f"No offer of {argument} (newest poll {at}).")
    return listing(f"{_count(len(found.offers), 'offer', 'offers')} of {argument} at {at}, commission included", items)


def history(context: ChatContext, argument: str) -> ChatReply:
    """Show a GPU's price over the last month, as a picture."""
    if not argument:
        return said("Which GPU? For example: /history H100", _gpu_rows(context, ButtonAction.HISTORY))
    zone = ZoneInfo(context.settings.timezone)
    asked = PriceHistoryRequest(
        gpu=argument,
        scope=MarketFilter(),
        since=context.now - timedelta(days=_HISTORY_DAYS),
        until=context.now,
        data=None,
        every=None,
        is_for_programs=False,
        zone=zone,
        under_usd=(),
    )
    found = price_history(context.settings, asked)
    if not found.track.series.known:
        return said(f"No data for {argument}: never polled. Is this GPU in a watch or under [record]?")
    title = f"{argument}: USD per GPU-hour, commission included"
    sums = _history_sums(found)
    try:
        picture = price_history_png(found, title, zone)
    except UsageError as without:  # matplotlib is an extra
        return said(f"{title}\n{sums}\n{without}")
    reply = said(f"{title}\n{sums}")
    return ChatReply(lines=reply.lines, picture=picture)


def _history_sums(found: PriceHistoryResult) -> str:
    known = [point for point in found.track.points if point.min_with_commission_microusd is not None]
    series = found.track.series
    known_hours = f"known: {series.known} of {len(series.polled)} h"
    if not known:
        return f"no offers; {known_hours}"
    lows = [one.min_with_commission_microusd for one in known if one.min_with_commission_microusd is not None]
    newest = known[-1]
    median = newest.median_with_commission_microusd
    middle = "" if median is None else f", median ${price_text(median / MICRO)}"
    now, least = price_text(lows[-1] / MICRO), price_text(min(lows) / MICRO)
    return f"newest period: lowest ${now}{middle}; lowest overall ${least}; {known_hours}"


def _gpu_rows(context: ChatContext, action: ButtonAction) -> list[Sequence[MessageButton]]:
    buttons = [context.button(name, action, subject_key(name)) for name in known_gpus(context)]
    return list(rows_of(buttons))


def known_gpus(context: ChatContext) -> list[str]:
    """Return the watched and recorded GPUs, as buttons."""
    named = [name for watch in context.settings.watches for name in sorted(watch.gpu_names)]
    return list(dict.fromkeys([*context.settings.record_gpus, *named]))[:12]


def launches(context: ChatContext, argument: str) -> ChatReply:
    """List active launches, and those that ended today."""
    now = context.now
    shown = [
        one
        for one in all_launches(context.settings)
        if not one.is_over or (one.ended_at or one.intended_at) > now - _ENDED_SHOWN_FOR
    ][:_LAUNCHES_SHOWN]
    if not shown:
        return said("No launch is active, and none ended today.")
    zone = context.settings.timezone
    buttons = [
        context.button(f"{label} {one.launch_id}", action, one.launch_id)
        for one in shown
        if not one.is_over
        for label, action in (("Stop", ButtonAction.STOP), ("Extend", ButtonAction.EXTEND), ("Cost", ButtonAction.COST))
    ]
    return listing("Launches", [(one.launch_id, f": {launch_text(one, now, zone)}") for one in shown], rows_of(buttons))


def launch_text(launch: Launch, now: datetime, timezone: str) -> str:
    """Describe one launch in a line."""
    ends_at = None if launch.is_over else latest_end(launch)
    parts = [
        f"{launch.state.value}{' (dry run)' if launch.dry_run else ''}",
        f"{launch.gpu} × {launch.gpu_count} at {launch.provider}",
        f"{dollars(usd(launch.price_microusd_hour))} per hour",
        f"cost {dollars(usd(cost_microusd(launch, now)))}",
        launch.watch,
    ]
    if ends_at is not None:
        parts.append(f"ends {format_moment(ends_at, ZoneInfo(timezone))}")
    if launch.end_reason:
        parts.append(launch.end_reason)
    return " · ".join(parts)


def costs(context: ChatContext, argument: str) -> ChatReply:
    """Show the month: by watch, the forecast, and the budgets."""
    report = cost_report(context.settings, "watch")
    items = [(one.key, f": {dollars(usd(one.cost.effective))}") for one in report.lines]
    items.append(("Total", f": {dollars(usd(report.total.cost.effective))}"))
    items.append(("Now", f": {dollars(usd(report.burn.effective))} per hour, {report.burn.launches} active"))
    for use in report.budgets:
        percent = use.percent(use.used)
        share = "" if percent is None else f" ({percent:.0f} %)"
        whose = "" if use.watch is None else f" of {use.watch}"
        items.append((f"{use.limit_name}{whose}", f": {dollars(usd(use.used))} of {dollars(usd(use.limit))}{share}"))
    return listing(f"Costs of {report.first:%B %Y} (UTC)", items)


def cost_of(context: ChatContext, launch_id: str) -> ChatReply:
    """Show what one launch has cost, and what it may still cost."""
    launch = next((one for one in all_launches(context.settings) if one.launch_id == launch_id), None)
    if launch is None:
        raise UsageError(f"there is no launch {launch_id}; see: /launches")
    cost = dollars(usd(cost_microusd(launch, context.now)))
    text = launch_text(launch, context.now, context.settings.timezone)
    return said(f"Launch {launch.launch_id}: {text}", notice=f"{launch.launch_id}: {cost} so far, {launch.state.value}")


def why(context: ChatContext, alert_id: str) -> ChatReply:
    """Explain the cause of an alert."""
    wanted = EventFilter(since=context.now - _WHY_BACK)
    found = next((one.alert for one in stored_events(context.settings, wanted) if one.alert.alert_id == alert_id), None)
    if found is None:
        raise UsageError("that alert is no longer in the store")
    facts = "\n".join(f"{label}: {value}" for label, value in found.facts if label in _WHY_FACTS)
    reason = found.why or "The alert has no reason."
    return said(f"{found.headline}\nWhy: {reason}\n{facts}\nDone: {found.did or 'nothing'}", notice=reason)


_WHY_FACTS = frozenset({"Threshold", "Price", "Listed", "Rank", "Quote", "At most", "Seen", "Available", "Job"})
