"""Actions that only read: status, watches, offers and their history, launches, costs, and why an alert was sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.app.alerts.alerts import stored_events
from gpuwatch.app.alerts.needs import APPROVAL
from gpuwatch.app.history.price_history import PriceHistoryRequest, PriceHistoryResult, price_chart, price_history
from gpuwatch.app.history.svg_axes import COMPACT
from gpuwatch.app.history.svg_charts import picture
from gpuwatch.app.launches.costs import cost_report
from gpuwatch.app.launches.launches import all_launches
from gpuwatch.app.launches.most_cost import most_cost_microusd
from gpuwatch.app.market.current_offers import current_offers
from gpuwatch.app.market.market_by_gpu import WatchedPrices, market_answer, offers_by_gpu
from gpuwatch.app.market.market_ranks import market_ranks
from gpuwatch.app.reader_text import use_clock
from gpuwatch.app.setup.status import provider_down, status_now
from gpuwatch.app.watches.blocked import RuleState
from gpuwatch.app.watches.current_limits import known_limits
from gpuwatch.app.watches.nearest import nearest_view
from gpuwatch.app.watches.watch_selection import in_group, watch_named
from gpuwatch.app.watches.watch_status import WatchStatus, watch_statuses
from gpuwatch.app.watches.why.rule_texts import first_blocking, rule_texts, rules_title, under_text
from gpuwatch.app.watches.why.watch_details import DAYS, watch_details
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.chat.replies import ChatContext, ChatReply, button_rows, listing, simple_reply
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.life.launch_record import state_of
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.figure_text import count_text, month_text
from gpuwatch.domain.market.money import MICRO, dollars, per_hour, price_text, usd
from gpuwatch.domain.market.offer import OfferKind, gpus_text
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.alert_buttons import ButtonAction, subject_key
from gpuwatch.engine.market.browse import offer_filter, sorted_offers
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_composed
from gpuwatch.ports import Alert
from gpuwatch.ports.alerts import MessageButton
from gpuwatch.storage.alerts.alert_rows import EventFilter

_OFFERS_SHOWN = 8
_GPUS_SHOWN = 12
_LAUNCHES_SHOWN = 12
_ENDED_FOR_MAX = timedelta(days=1)
_HISTORY_DAYS = 30
_ALERT_LOOKBACK = timedelta(days=9)


def status(context: ChatContext, argument: str) -> ChatReply:
    """Show what needs the owner, the providers, the launches and their cost per hour."""
    settings = context.settings
    zone, now = ZoneInfo(settings.timezone), status_now(settings)
    mode = "dry run: gpuwatch rents nothing" if now.dry_run else "renting is on"
    items = [("gpuwatch", f": {count_text(len(now.watches), 'watch', 'watches')}, {mode}")]
    items += [("Needs you", f": {need.text}") for need in now.needs if need.kind != APPROVAL]
    for provider in now.providers:
        newest, down = provider.health.complete_at, provider_down(provider, zone)
        when = "no complete answer yet" if newest is None else f"last complete answer {format_moment(newest, zone)}"
        items.append((provider.provider, f": {when if down is None else f'{down.what}; {when}'}"))
    burn = per_hour(usd(now.spending.burn.effective))
    items.append(("Launches", f": {len(now.spending.alive)} active, {burn}"))
    if approvals := sum(need.kind == APPROVAL for need in now.needs):
        items.append(("Approvals", f": {approvals} pending: /approve"))
    items += [("Paused", f": {line}") for line in now.paused]
    items += [("Silenced", f": {line}") for line in now.silenced]
    return listing(f"Status at {format_moment(now.at, zone)}", items)


def watches(context: ChatContext, argument: str) -> ChatReply:
    """List the watches, or those of a group, with limit and action, and why they do not act on what they find."""
    settings = context.settings
    selected = in_group(settings, argument.removeprefix("group ").strip() or None)
    statuses = watch_statuses(settings, selected)
    items = [
        (one.watch.name, f": {_wanted_text(one.watch)}; {one.watch.action.value}{_found_text(one)}") for one in statuses
    ]
    if not items:
        return simple_reply("No watch is in this group." if argument else "No watch is defined in the settings.")
    buttons = [
        context.button(label, action, subject_key(name))
        for name in (watch.name for watch in selected)
        for label, action in ((f"Why {name}", ButtonAction.WHY_NOT), (f"Silence {name}", ButtonAction.SILENCE))
    ]
    return listing(count_text(len(items), "watch", "watches"), items, button_rows(buttons, 2))


def why_not(context: ChatContext, argument: str) -> ChatReply:
    """Explain what a watch does now: the rule that blocks it first, then the others, with their figures."""
    settings = context.settings
    if not argument:
        names = [watch.name for watch in settings.watches]
        buttons = [context.button(name, ButtonAction.WHY_NOT, subject_key(name)) for name in names]
        return simple_reply("Which watch? For example: /why NAME", button_rows(buttons, 2))
    details = watch_details(settings, watch_named(settings, argument), DAYS, context.now)
    status, first = details.status, first_blocking(details.rules)
    with use_clock(settings.timezone, context.now):
        texts = rule_texts(status, details.rules)
        past = under_text(details.prices, status)
    texts.sort(key=lambda text: first is None or text.name != first.name)
    items = [(f"{_RULE_MARKS[text.state]} {text.label}", f": {text.figure}" if text.figure else "") for text in texts]
    items.append((f"{DAYS} d", f": {past}"))
    name = status.watch.name
    pausing = (
        (f"Pause {name}", ButtonAction.PAUSE) if status.paused is None else (f"Resume {name}", ButtonAction.RESUME)
    )
    buttons = [
        context.button(label, action, subject_key(name))
        for label, action in (pausing, (f"Silence {name}", ButtonAction.SILENCE))
    ]
    return listing(f"{name}: {rules_title(status, details.rules)}", items, [buttons])


_RULE_MARKS = {RuleState.MET: "✓", RuleState.BLOCKS: "✗", RuleState.UNKNOWN: "?"}


def _found_text(status: WatchStatus) -> str:
    if not status.matches:
        near = nearest_view(status.watch, status.nearest)
        return "; no data" if status.state == "no data" else "" if near is None else f"; {near.sentence}"
    price = price_text(status.matches[0].price_microusd_gpu_hour / MICRO)
    return f"; matches now at ${price}" + (f". {status.blocked.sentence}" if status.blocked else "")


def _wanted_text(watch: Watch) -> str:
    gpus = ", ".join(sorted(watch.gpu_names)[:4]) or "any GPU"
    if not watch.gpu_count_max:
        return f"a machine without GPUs at or under {per_hour(watch.max_price_usd_gpu_hour, most=6)}"
    more = len(watch.gpu_names) - 4
    more_text = f" and {more} more" if more > 0 else ""
    if watch.unlimited:
        return f"{gpus}{more_text} by its price history"
    return f"{gpus}{more_text} at or under ${price_text(watch.max_price_usd_gpu_hour, most=6)}/GPU-h"


def offers(context: ChatContext, argument: str) -> ChatReply:
    """List the cheapest offers of a GPU, as last polled."""
    if not argument:
        return simple_reply("Which GPU? For example: /offers H100", _gpu_rows(context, ButtonAction.OFFERS))
    current = current_offers(context.settings, offer_filter((argument,), spot="any"))
    if current.as_of is None:
        return simple_reply(
            f"Cannot tell: {argument} has not been polled yet. Is this GPU in a watch or under [record]?"
        )
    at = format_moment(current.as_of, ZoneInfo(context.settings.timezone))
    listed = [folded.primary for folded in sorted_offers(current.matches, "gpu-price")]
    items = [
        (
            f"${price_text(match.price_microusd_gpu_hour / MICRO)}",
            f"/GPU-h · {offer.gpu} × {offer.gpu_count}{', spot' if offer.spot else ''} · "
            f"{offer.place or 'place unknown'} · {offer.provider}, offer {offer.offer_id}",
        )
        for match in listed[:_OFFERS_SHOWN]
        for offer in [match.offer]
    ]
    if not items:
        return simple_reply(f"No offer of {argument} (newest poll {at}).")
    return listing(f"{count_text(len(listed), 'offer')} of {argument} at {at}, commission included", items)


def market(context: ChatContext, argument: str) -> ChatReply:
    """Show which GPUs are cheap now, compared with their prices of 30 days."""
    settings, now = context.settings, context.now
    current = current_offers(settings, offer_filter((), spot="no"))
    if current.as_of is None:
        return simple_reply("Cannot tell: nothing has been polled yet.")
    watched = WatchedPrices(known_limits(settings, now), all_commissions(settings), now)
    ranks = market_ranks(settings, MarketFilter(spot=False), now)
    groups = offers_by_gpu(current.matches, ranks, watched, spot=False)
    items = [
        (
            group.gpu,
            f": ${price_text(group.now / MICRO)} per GPU-hour · {group.rank.text(group.now)} · "
            f"{count_text(len(group.offers), 'offer')}",
        )
        for group in groups
        if group.kind is OfferKind.LIVE and not group.is_slice
    ]
    answer = " ".join(filter(None, market_answer(groups)))
    return listing(answer, items[:_GPUS_SHOWN])


def history(context: ChatContext, argument: str) -> ChatReply:
    """Show a GPU's price over the last month, as a picture."""
    if not argument:
        return simple_reply("Which GPU? For example: /history H100", _gpu_rows(context, ButtonAction.HISTORY))
    zone = ZoneInfo(context.settings.timezone)
    request = PriceHistoryRequest(
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
    result = price_history(context.settings, request)
    if not result.track.series.known:
        return simple_reply(f"No data for {argument}: never polled. Is this GPU in a watch or under [record]?")
    title = f"{argument}: USD per GPU-hour, commission included"
    sums = _history_sums(result)
    try:
        heading = translate_composed(title)
        drawn = picture(
            heading, [price_chart(result, heading, zone, COMPACT)], [_("Times in {zone}").format(zone=zone.key)]
        )
    except UsageError as without:  # what draws it is an extra
        return simple_reply(f"{title}\n{sums}\n{without}")
    reply = simple_reply(f"{title}\n{sums}")
    return ChatReply(lines=reply.lines, picture=drawn)


def _history_sums(result: PriceHistoryResult) -> str:
    priced_points = [point for point in result.track.points if point.min_with_commission_microusd is not None]
    series = result.track.series
    known_hours = f"known: {series.known} of {len(series.polled)} h"
    if not priced_points:
        return f"no offers; {known_hours}"
    lows = [
        point.min_with_commission_microusd for point in priced_points if point.min_with_commission_microusd is not None
    ]
    newest = priced_points[-1]
    median = newest.median_with_commission_microusd
    middle = "" if median is None else f", median ${price_text(median / MICRO)}"
    now, lowest = price_text(lows[-1] / MICRO), price_text(min(lows) / MICRO)
    return f"newest period: lowest ${now}{middle}; lowest overall ${lowest}; {known_hours}"


def _gpu_rows(context: ChatContext, action: ButtonAction) -> list[Sequence[MessageButton]]:
    buttons = [context.button(name, action, subject_key(name)) for name in known_gpus(context)]
    return list(button_rows(buttons))


def known_gpus(context: ChatContext) -> list[str]:
    """Return the names of the recorded and watched GPUs, as many as there are buttons."""
    gpu_names = [name for watch in context.settings.watches for name in sorted(watch.gpu_names)]
    return list(dict.fromkeys([*context.settings.record.gpu_names, *gpu_names]))[:12]


def launches(context: ChatContext, argument: str) -> ChatReply:
    """List active launches, and those that ended today."""
    now = context.now
    listed = [
        launch
        for launch in all_launches(context.settings)
        if not launch.is_over or (launch.ended_at or launch.intended_at) > now - _ENDED_FOR_MAX
    ][:_LAUNCHES_SHOWN]
    if not listed:
        return simple_reply("No launch is active, and none ended today.")
    zone = context.settings.timezone
    buttons = [
        context.button(f"{label} {launch.launch_id}", action, launch.launch_id)
        for launch in listed
        if not launch.is_over
        for label, action in (
            ("Start", ButtonAction.START) if launch.is_kept else ("Stop", ButtonAction.STOP),
            ("Extend", ButtonAction.EXTEND),
            ("Cost", ButtonAction.COST),
        )
    ]
    return listing(
        "Launches",
        [(launch.launch_id, f": {launch_text(launch, now, zone)}") for launch in listed],
        button_rows(buttons),
    )


def active_launch(context: ChatContext, launch_id: str) -> Launch:
    """Return a launch that is not over. Raises UsageError."""
    launch = next((launch for launch in all_launches(context.settings) if launch.launch_id == launch_id), None)
    if launch is None:
        raise UsageError(f"there is no launch {launch_id!r}; see: /launches")
    if launch.is_over:
        raise UsageError(f"launch {launch_id} is already {launch.state.value}: {launch.end_reason or 'over'}")
    return launch


def launch_text(launch: Launch, now: datetime, timezone: str) -> str:
    """Describe one launch in a line."""
    ends_at, most = (None, None) if launch.is_over else (latest_end(launch), most_cost_microusd(launch, now))
    parts = [
        state_of(launch),
        f"{gpus_text(launch.gpu, launch.gpu_count)} at {launch.provider}",
        f"{dollars(usd(launch.price_microusd_hour))} per hour",
        f"cost {dollars(usd(cost_microusd(launch, now)))}",
        launch.watch,
    ]
    if most is not None:
        parts.append(f"at most {dollars(usd(most))}")
    if ends_at is not None:
        parts.append(f"ends {format_moment(ends_at, ZoneInfo(timezone))}")
    if launch.end_reason:
        parts.append(launch.end_reason)
    return " · ".join(parts)


def costs(context: ChatContext, argument: str) -> ChatReply:
    """Show the month: by watch, the forecast, and the budgets."""
    report = cost_report(context.settings, "watch")
    items = [(line.key, f": {dollars(usd(line.cost.effective))}") for line in report.lines]
    items.append(("Total", f": {dollars(usd(report.total.cost.effective))}"))
    items.append(("Now", f": {dollars(usd(report.burn.effective))} per hour, {report.burn.launches} active"))
    for use in report.budgets:
        percent = use.percent(use.used)
        share = "" if percent is None else f" ({percent:.0f} %)"
        of_watch = "" if use.watch is None else f" of {use.watch}"
        items.append((f"{use.limit_name}{of_watch}", f": {dollars(usd(use.used))} of {dollars(usd(use.limit))}{share}"))
    return listing(f"Costs of {month_text(report.first)} {report.first.year} (UTC)", items)


def cost_of(context: ChatContext, launch_id: str) -> ChatReply:
    """Show what one launch has cost, and what it may still cost."""
    launch = next((launch for launch in all_launches(context.settings) if launch.launch_id == launch_id), None)
    if launch is None:
        raise UsageError(f"there is no launch {launch_id}; see: /launches")
    cost = dollars(usd(cost_microusd(launch, context.now)))
    text = launch_text(launch, context.now, context.settings.timezone)
    return simple_reply(
        f"Launch {launch.launch_id}: {text}", notice=f"{launch.launch_id}: {cost} so far, {launch.state.value}"
    )


def alert_of(context: ChatContext, alert_id: str) -> Alert:
    """A stored alert. Raises UsageError: it is too old."""
    event_filter = EventFilter(since=context.now - _ALERT_LOOKBACK)
    found = (event.alert for event in stored_events(context.settings, event_filter) if event.alert.alert_id == alert_id)
    alert = next(found, None)
    if alert is None:
        raise UsageError("that alert is no longer in the store")
    return alert


def why(context: ChatContext, alert_id: str) -> ChatReply:
    """Explain the cause of an alert."""
    alert = alert_of(context, alert_id)
    facts = "\n".join(f"{label}: {value}" for label, value in alert.facts if label in _WHY_FACTS)
    reason = alert.why or "The alert has no reason."
    return simple_reply(f"{alert.headline}\nWhy: {reason}\n{facts}\nDone: {alert.did or 'nothing'}", notice=reason)


_WHY_FACTS = frozenset({"Threshold", "Price", "Listed", "Rank", "Quote", "At most", "Seen", "Available", "Job"})
