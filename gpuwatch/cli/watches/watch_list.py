"""`gpuwatch watches`: each watch with its state, last price, limit, distance, and why it does not act."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command, Group, refuse_given
from gpuwatch.cli.options import completes, group_option, json_option, settings_option
from gpuwatch.cli.output import displayable, json_out, local, note
from gpuwatch.cli.terminal_tables import Column, left, right, table, text
from gpuwatch.domain.market.figure_text import percent_text
from gpuwatch.domain.market.money import MICRO, dollars, per_gpu_hour, per_unit_hour
from gpuwatch.domain.market.offer import hardware_text
from gpuwatch.errors import ResourceNotFound

if TYPE_CHECKING:
    from gpuwatch.app.watches.watch_status import WatchStatus
    from gpuwatch.app.watches.why.past_decisions import PastWhy
    from gpuwatch.app.watches.why.watch_details import WatchDetails
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    name="list",
    examples=(
        "gpuwatch watches list",
        "gpuwatch watches list --group night",
        "gpuwatch watches list h100-night --json",
        "gpuwatch watches list h100-night --why 03:12",
    ),
)
@click.argument("names", nargs=-1, metavar="[WATCH]...", shell_complete=completes("watches"))
@group_option("Only the watches of this group.")
@click.option(
    "--days",
    type=click.IntRange(1, 90),
    default=7,
    show_default=True,
    help="With a WATCH: of so many days, what it would have matched.",
)
@click.option("--why", metavar="TIME", help='With a WATCH: why it did not act at 03:12, or at "2026-11-28 03:12".')
@json_option
@settings_option
def list_(
    names: tuple[str, ...], group: str | None, days: int, why: str | None, as_json: bool, settings: Settings
) -> None:
    """List the watches: state, price now, limit, distance, and why they do not act. Sends no request.

    With a name, show all about that watch: each rule that it must meet before it acts, with its figures, and the lowest
    price of each day (with --json, of each hour) that it would have matched. With --why, show what it decided at a
    time of the past, and why: a time of day is the last one that is over, in the configured zone.

    Exit codes: 0 done, 2 usage or settings are wrong, 3 the store cannot tell.
    """
    if names:
        refuse_given("cannot be combined with a WATCH", "group")
        if why is not None:
            refuse_given("cannot be combined with --why", "days")
            _show_why(settings, _selected(settings, names), why, as_json=as_json)
            return
        _show_named(settings, _selected(settings, names), days, as_json=as_json)
        return
    refuse_given("requires a WATCH", "days", "why")
    from gpuwatch.app.watches.watch_selection import in_group
    from gpuwatch.app.watches.watch_status import watch_status_view, watch_statuses

    statuses = watch_statuses(settings, in_group(settings, group))
    if as_json:
        json_out([watch_status_view(status) for status in statuses])
    elif not statuses and group is not None:
        click.echo(f'no watch has group = "{group}"')
    elif not statuses:
        click.echo("no watch yet; create one: gpuwatch init")
    else:
        print_watches(statuses, settings.timezone)


def _show_named(settings: Settings, watches: Sequence[Watch], days: int, *, as_json: bool) -> None:
    from gpuwatch.app.reader_text import use_clock
    from gpuwatch.app.watches.why.watch_details import watch_details, watch_details_view
    from gpuwatch.bootstrap import real_now

    now = real_now()
    found = [watch_details(settings, watch, days, now) for watch in watches]
    if as_json:
        json_out([watch_details_view(details) for details in found])
        return
    with use_clock(settings.timezone, now):
        for number, details in enumerate(found):
            click.echo("\n" * bool(number) + "\n".join(_detail_lines(details, settings.timezone)))
            _print_rules(details)
            _print_days(details, settings.timezone)


def _show_why(settings: Settings, watches: Sequence[Watch], text: str, *, as_json: bool) -> None:
    from gpuwatch.app.reader_text import use_clock
    from gpuwatch.app.watches.why.past_decisions import past_span, past_why_view, why_at
    from gpuwatch.bootstrap import real_now

    now = real_now()
    span = past_span(text, now, settings.timezone)
    found = [why_at(settings, watch, *span) for watch in watches]
    with use_clock(settings.timezone, now):
        if as_json:
            json_out([past_why_view(one) for one in found])
            return
        for number, one in enumerate(found):
            click.echo("\n" * bool(number) + "\n".join(_why_lines(one, settings.timezone)))
            _print_changes(one, settings.timezone)


def _why_lines(found: PastWhy, timezone: str) -> Iterator[str]:
    decision = found.decision
    yield displayable(f"{found.watch.name}: {found.sentence}")
    limit = None if decision is None else decision.limit_microusd_gpu_hour
    low, units = found.low_microusd_gpu_hour, 0 if found.watch.wants_no_gpu else 1
    facts = {
        "at": local(found.at, timezone),
        "since": "" if decision is None else local(decision.at, timezone),
        "until": local(found.until, timezone),
        "lowest match": "" if low is None else per_unit_hour(low / MICRO, units),
        "limit": "" if limit is None else per_unit_hour(limit / MICRO, units),
        "polled": f"{local(found.polled_at, timezone)}, next {local(found.next_polled_at, timezone)}",
    }
    for name, value in facts.items():
        if value and value != "–":
            yield displayable(f"  {name:<12}  {value}")


def _print_changes(found: PastWhy, timezone: str) -> None:
    from gpuwatch.app.watches.why.past_decisions import decision_words

    if not found.changes:
        return
    click.echo()
    columns = (left("from", "at"), text("decision", lambda one: decision_words(found.watch, one)))
    table(columns, found.changes, title="Twelve hours before and after", timezone=timezone)


def _print_rules(details: WatchDetails) -> None:
    from gpuwatch.app.watches.why.rule_texts import rule_texts, rules_title

    click.echo()
    columns = (left("state", "state"), left("rule", "label"), text("now", "figure"))
    table(columns, rule_texts(details.status, details.rules), title=rules_title(details.status, details.rules))


def _print_days(details: WatchDetails, timezone: str) -> None:
    from zoneinfo import ZoneInfo

    from gpuwatch.app.watches.why.rule_texts import under_text

    click.echo()
    if not details.prices.known_hours:
        click.echo(under_text(details.prices, details.status))
        return
    columns = (
        left("day", lambda day: local(day.at, timezone)[:10]),
        right("lowest match", lambda day: None if day.low is None else per_gpu_hour(day.low / MICRO, least=3, most=3)),
        right("hours polled", lambda day: f"{day.polled_hours:g}"),
    )
    days = details.prices.parts(ZoneInfo(timezone))
    table(columns, days, title=under_text(details.prices, details.status))
    if details.prices.unrecorded:
        note(f"the history does not record what these settings select by: {', '.join(details.prices.unrecorded)}")


def _selected(settings: Settings, names: Sequence[str]) -> list[Watch]:
    from gpuwatch.app.watches.watch_selection import select_watches

    try:
        return select_watches(settings, names)
    except ResourceNotFound as error:
        group = click.get_current_context().find_root().command
        near = _near_commands(group, names)
        raise ResourceNotFound(f"{error}; did you mean gpuwatch watches {near[0]}?" if near else str(error)) from None


def _near_commands(root: click.Command, names: Sequence[str]) -> list[str]:
    """Commands of `gpuwatch watches` that a name may have been meant to be."""
    from difflib import get_close_matches

    watches = root.get_command(click.get_current_context(), "watches") if isinstance(root, Group) else None
    known = watches.list_commands(click.get_current_context()) if isinstance(watches, Group) else ()
    return get_close_matches(names[0], known, n=1) if names else []


def _price(status: WatchStatus) -> str | None:
    best = status.nearest
    return (
        None
        if best is None
        else per_unit_hour(best.price_microusd_gpu_hour / MICRO, best.offer.gpu_count, least=3, most=3)
    )


def _limit(status: WatchStatus, least: int = 3, most: int = 3) -> str:
    if status.watch.max_job_cost_usd is not None:
        return f"{dollars(status.watch.max_job_cost_usd)} a job"
    return (
        "any"
        if status.watch.unlimited
        else per_unit_hour(status.limit_usd_gpu_hour, status.watch.gpu_count_max, least=least, most=most)
    )


def print_watches(statuses: Sequence[WatchStatus], timezone: str) -> None:
    """Print a line for all watches, one for each, and why some do not act."""
    from gpuwatch.app.watches.watch_status import reason_lines, watches_text

    table(_COLUMNS, statuses, title=watches_text(statuses), timezone=timezone)
    for line in reason_lines(statuses):
        click.echo(displayable(line))


_COLUMNS: tuple[Column, ...] = (
    left("watch", lambda status: status.watch.name),
    left("group", lambda status: status.watch.group, drop=1, optional=True),
    left("state", "state"),
    right("price", _price),
    right("limit", _limit),
    right("distance", lambda status: percent_text(status.distance, 0, "+"), drop=2),
    left("action", lambda status: status.watch.action.value, drop=3),
    left("polled", "seen_at", drop=4),
)


def _detail_lines(details: WatchDetails, timezone: str) -> Iterator[str]:
    from gpuwatch.app.watches.nearest import nearest_view

    status = details.status
    watch = status.watch
    near = nearest_view(watch, status.nearest, details.times_under)
    is_near = near is not None and not status.matches and status.state == "waiting"
    yield displayable(f"{watch.name}: {near.sentence if near is not None and is_near else status.sentence}")
    facts = {
        "GPU": ", ".join(watch.gpu),
        "price": _best_text(status),
        "limit": _limit(status, 2, 6) + (" (auto)" if watch.auto is not None else ""),
        "distance": percent_text(status.distance, 1, "+"),
        "action": watch.action.value,
        "group": watch.group or "",
        "state": status.state,
        "polled": f"{local(status.seen_at, timezone)}, next {local(status.next_poll_at, timezone)}",
        "fired": local(status.fired_at, timezone),
        "silenced": "" if status.silenced_until is None else f"until {local(status.silenced_until, timezone)}",
        "paused": status.paused or "",
        "why": status.why,
        "not recorded": ", ".join(status.unchecked),
    }
    for name, value in facts.items():
        if value and value != "–":
            yield displayable(f"  {name:<12}  {value}")


def _best_text(status: WatchStatus) -> str:
    best = status.nearest
    if best is None:
        return ""
    offer = best.offer
    place = ", ".join(filter(None, (offer.place,)))
    price = per_unit_hour(best.price_microusd_gpu_hour / MICRO, offer.gpu_count)
    return f"{price}, {hardware_text(offer.gpu, offer.gpu_count)} at {offer.provider}{f', {place}' if place else ''}"
