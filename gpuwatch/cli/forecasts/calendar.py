"""`gpuwatch forecasts calendar`: are nights or weekends cheaper?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, method_option, wants_method
from gpuwatch.cli.html import html_option, png_option, recorded_page, refuse_html_with, save_page, save_picture
from gpuwatch.cli.options import (
    PastOptions,
    completes,
    csv_option,
    json_option,
    past_options,
    settings_option,
)
from gpuwatch.cli.output import echo, json_out, local, record_output
from gpuwatch.cli.terminal_tables import csv_out, left, right, table, uses_colour
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import per_gpu_hour
from gpuwatch.domain.market.offer import clean

if TYPE_CHECKING:
    from gpuwatch.app.forecasts.calendar import PriceCalendar
    from gpuwatch.app.history.svg_charts import SvgChart
    from gpuwatch.domain.forecasts.week_effects import Calendar, CalendarEffect, WeekPart
    from gpuwatch.domain.forecasts.week_patterns import HourOfWeekPrice
    from gpuwatch.settings import Settings

_MAX_BLOCKS = 12
_MAX_NAME_LENGTH = 24
_MAX_PERCENT = 99


@click.command(
    cls=Command,
    examples=(
        "gpuwatch forecasts calendar 'H100 SXM'",
        "gpuwatch forecasts calendar H100 --zone Europe/Berlin --blocks 'office=Mon-Fri 09:00-18:00'",
    ),
)
@click.argument("gpu", shell_complete=completes("gpus"))
@past_options("90d")
@click.option(
    "--zone", default=None, metavar="NAME", help='Time zone, such as "Europe/Berlin". Default: as configured.'
)
@click.option(
    "--blocks",
    multiple=True,
    metavar="NAME=WINDOW[,WINDOW]",
    help="Part of the week to compare with the rest; may be repeated. Default: nights of weekdays, days of weekends, "
    "and both together (off-peak), each against the days of weekdays.",
)
@csv_option("Print the 168 hours of the week as CSV.")
@png_option
@html_option
@method_option
@json_option
@settings_option
def calendar(
    gpu: str,
    past: PastOptions,
    zone: str | None,
    blocks: tuple[str, ...],
    as_csv: bool,
    png: Path | None,
    dark: bool,
    html: Path | None,
    as_json: bool,
    settings: Settings,
) -> int:
    """Test whether a GPU is cheaper at night or at weekends, by its lowest price in each hour of the week.

    Prices are per GPU-hour, commission included. A difference is reported only if chance is an unlikely explanation:
    in 19 of 20 histories without a difference, every line says "no effect".

    Exit codes: 0 done, 2 usage, 3 the history is too short.
    """
    from gpuwatch.app.forecasts.calendar import CalendarRequest, calendar_json, cell_json, price_calendar
    from gpuwatch.bootstrap import real_now

    refuse_html_with(html, as_data=as_csv or as_json)
    parts = _parts(blocks)
    _check_zone(zone)
    request = CalendarRequest(gpu=gpu, zone=zone or settings.timezone, parts=parts, **past.request(real_now()))
    result = price_calendar(settings, request)
    title = past.title(gpu) + (f" at {past.provider}" if past.provider else "")
    heading = f"{title}: lowest price by hour of the week, {result.zone}"
    if as_json:
        json_out(calendar_json(result, gpu))
    elif as_csv:
        csv_out([cell_json(cell, result.calendar) for cell in result.calendar.cells])
    else:
        with record_output() as recording:
            _print_calendar(result, title)
        if html and result.calendar.hours:
            verdict = list(_sentences(result.calendar))
            save_page(html, recorded_page(heading, verdict, _charts(result, heading), recording))
    if not result.calendar.hours:
        past.note_older_prices(settings, result.gpus, request.since)
    elif png:
        save_picture(png, heading, _charts(result, heading), _picture_notes(result.calendar), dark=dark)
    return Exit.DONE if result.calendar.is_answered else Exit.CANNOT_TELL


def _check_zone(name: str | None) -> None:
    try:
        ZoneInfo(name or "UTC")
    except (OSError, ValueError, LookupError) as error:  # unknown, a folder, or a path outside the zone database
        raise click.BadParameter(
            f'expected a time zone such as "Europe/Berlin": {name!r}', param_hint="--zone"
        ) from error


def _parts(blocks: tuple[str, ...]) -> list[WeekPart]:
    """Raises click.BadParameter."""
    from gpuwatch.domain.forecasts.week_effects import default_parts

    if not blocks:
        return default_parts()
    if len(blocks) > _MAX_BLOCKS:
        raise click.BadParameter(f"expected at most {_MAX_BLOCKS}", param_hint="--blocks")
    price_parts = [_part(text) for text in blocks]
    if len({part.name for part in price_parts}) < len(price_parts):
        raise click.BadParameter("names must be unique", param_hint="--blocks")
    return price_parts


def _part(text: str) -> WeekPart:
    from gpuwatch.domain.forecasts.week_effects import week_part

    name, equals, window = text.partition("=")
    name = clean(name).strip()
    try:
        if not equals or not name or len(name) > _MAX_NAME_LENGTH:
            raise ValueError("expected NAME=WINDOW such as night=22:00-08:00 or offpeak=22:00-08:00,Sat-Sun")  # noqa: TRY301
        return week_part(name, window.strip())
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--blocks") from error


def _print_calendar(result: PriceCalendar, title: str) -> None:
    """The answer, the heat map, the table, and the conclusions."""
    from gpuwatch.app.forecasts.calendar import calendar_sentence
    from gpuwatch.domain.forecasts.week_effects import HOURS_METHOD, METHOD

    calendar = result.calendar
    if not calendar.hours:
        reason = "no offers at any poll" if calendar.hours_polled else "it was never polled"
        echo(f"{title}: no data in {result.series.source}; {reason}.")
        return
    echo(f"{calendar_sentence(title, calendar)}\n")
    echo(f"{title} by hour of the week, {result.zone}: percent difference from the median, {_usd(calendar)}")
    for line in _map(calendar):
        click.echo(line)
    echo(f"{'':4}{_weeks_text(calendar)}; each number is the median of the lowest prices in that hour\n")
    table(_COLUMNS, [*calendar.effects, calendar.any_hour])
    click.echo()
    for line in _sentences(calendar):
        echo(line)
    echo(
        f"\n{result.series.source}: {count_text(calendar.hours, 'hour')} with a price, of "
        f"{calendar.hours_polled} polled, "
        f"from {local(calendar.since, result.zone)} to {local(calendar.until, result.zone)}; "
        f"the price {_changes_text(calendar.changes)}."
    )
    if wants_method():
        echo(f"Method: {METHOD}; hours of the day: {HOURS_METHOD}.")


def _usd(calendar: Calendar) -> str:
    return "–" if calendar.median_microusd is None else per_gpu_hour(calendar.median_microusd / 1e6)


def _map(calendar: Calendar) -> Iterator[str]:
    """Seven lines of 24 numbers, coloured on a terminal."""
    from gpuwatch.app.forecasts.calendar import DAYS

    yield "    " + "".join(f"{hour:>3}" for hour in range(24))
    for day, name in enumerate(DAYS):
        yield f"{name} " + "".join(_map_cell(cell, calendar) for cell in calendar.cells[day * 24 : day * 24 + 24])


def _changes_text(times: int) -> str:
    return {0: "never changed", 1: "changed once"}.get(times, f"changed {count_text(times, 'time')}")


def _weeks_text(calendar: Calendar) -> str:
    """Number of weeks behind each number of the map."""
    min_weeks, max_weeks = min(cell.weeks for cell in calendar.cells), max(cell.weeks for cell in calendar.cells)
    return f"{min_weeks} to {max_weeks} weeks" if min_weeks < max_weeks else f"{max_weeks} weeks"


def _map_cell(cell: HourOfWeekPrice, calendar: Calendar) -> str:
    from gpuwatch.app.forecasts.calendar import percent_above_median

    percent = percent_above_median(cell, calendar)
    if percent is None:
        return "  ·"
    number = max(-_MAX_PERCENT, min(_MAX_PERCENT, round(percent)))
    text = f"{number:>3}"
    if not uses_colour() or not number:
        return text
    return click.style(text, fg="green" if number < 0 else "red", bold=abs(number) >= 10)


def _interval(effect: CalendarEffect) -> str | None:
    from gpuwatch.app.forecasts.calendar import percent_phrase

    if effect.low_percent is None or effect.high_percent is None:
        return None
    return f"{percent_phrase(effect.low_percent)} to {percent_phrase(effect.high_percent)}"


def _p_text(effect: CalendarEffect) -> str | None:
    if effect.p_adjusted is None:
        return None
    return "<0.001" if effect.p_adjusted < 0.001 else f"{effect.p_adjusted:.3f}"


def _cheaper_by(effect: CalendarEffect) -> str | None:
    from gpuwatch.app.forecasts.calendar import percent_phrase

    return None if effect.cheaper_percent is None else percent_phrase(effect.cheaper_percent)


_COLUMNS = (
    left("part", "name"),
    left("hours", "window", drop=2),
    left("verdict", "verdict"),
    right("cheaper by", _cheaper_by),
    right("95 % interval", _interval, drop=1),
    right("p", _p_text, drop=3),
    right("from", lambda effect: f"{effect.samples} {effect.sample}", drop=4),
)


def _sentences(calendar: Calendar) -> Iterator[str]:
    from gpuwatch.app.forecasts.calendar import daily_hours_text, effect_text
    from gpuwatch.domain.forecasts.week_effects import ALPHA

    for effect in calendar.effects:
        yield f"{effect.name}: {effect_text(effect)}."
    yield f"hours of the day: {daily_hours_text(calendar)}."
    for effect in calendar.effects:
        inside, outside = effect.without_offers_share, effect.without_offers_elsewhere_share
        if inside or outside:
            shares = f"{inside or 0:.1%} of its hours, {outside or 0:.1%} of the others"
            yield f"{effect.name}: no offers in {shares}."
    if calendar.comparisons > 1:
        yield f"p is corrected for {calendar.comparisons} comparisons (Holm); p < {ALPHA} is reported as a difference."


def _charts(result: PriceCalendar, heading: str) -> list[SvgChart]:
    from gpuwatch.app.forecasts.calendar import DAYS, percent_above_median
    from gpuwatch.app.history.svg_charts import week_map

    percents = [percent_above_median(cell, result.calendar) for cell in result.calendar.cells]
    return [week_map(heading, percents, DAYS)]


def _picture_notes(calendar: Calendar) -> Iterator[str]:
    """What the picture rests on, and the proven effects."""
    span = f"{calendar.since:%Y-%m-%d} to {calendar.until:%Y-%m-%d}, {_weeks_text(calendar)}"
    yield f"{span}, {count_text(calendar.hours, 'hour')} with a price"
    yield f"percent difference from the median, {_usd(calendar)}: blue is cheaper, orange more expensive"
    yield "; ".join(f"{effect.name}: {effect.verdict.value}{_size(effect)}" for effect in calendar.effects)


def _size(effect: CalendarEffect) -> str:
    from gpuwatch.app.forecasts.calendar import percent_phrase

    proven = effect.verdict.value in ("cheaper", "dearer") and effect.cheaper_percent is not None
    return f" by {percent_phrase(abs(effect.cheaper_percent or 0.0))}" if proven else ""
