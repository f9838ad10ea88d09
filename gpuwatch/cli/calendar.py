"""`gpuwatch calendar`: is it cheaper at night, or at weekends?"""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import completes, config_option, json_option
from gpuwatch.cli.past import past_options
from gpuwatch.cli.png import png_option

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.calendar import WeekPart

_DEFAULT_BLOCKS = ("night=22:00-08:00", "weekend=Sat-Sun")
_MOST_BLOCKS = 12
_LONGEST_NAME = 24


@click.command(
    cls=Command,
    examples=(
        "gpuwatch calendar 'H100 SXM'",
        "gpuwatch calendar H100 --zone Europe/Berlin --blocks 'office=Mon-Fri 09:00-18:00'",
    ),
)
@click.argument("gpu", shell_complete=completes("gpus"))
@past_options("90d")
@click.option("--zone", default=None, metavar="NAME", help='Whose clock: "Europe/Berlin". Default: as configured.')
@click.option(
    "--blocks",
    multiple=True,
    default=_DEFAULT_BLOCKS,
    show_default=True,
    metavar="NAME=WINDOW",
    help="Hours of the week to compare with all others, in place of these; may be given several times.",
)
@click.option("--csv", "as_csv", is_flag=True, help="The 168 hours of the week as CSV on standard output.")
@png_option
@json_option
@config_option
def calendar(
    gpu: str,
    count: str | None,
    spot: str,
    provider: str | None,
    since: str,
    until: str | None,
    data: Path | None,
    zone: str | None,
    blocks: tuple[str, ...],
    as_csv: bool,
    png: Path | None,
    as_json: bool,
    config: str | None,
) -> int:
    """Is it cheaper at night, or at weekends? The lowest price of a GPU by hour of the week, and what is proven of it.

    Prices are per GPU-hour and hold the commission. A difference is called one only where chance hardly makes it: in
    19 of 20 histories without any difference, all lines say "no effect".

    Exit codes: 0 there is an answer, 2 usage is wrong, 3 the history is not enough to tell.
    """
    from gpuwatch.app.past_prices import known_gpu_names_of, load_hourly_lows
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.calendar_show import (
        CalendarView,
        picture,
        print_calendar,
        print_csv,
        to_json,
    )
    from gpuwatch.cli.past import hint_at_older_prices, scope_of, span_of
    from gpuwatch.domain.analysis.calendar import calendar_of

    if as_csv and as_json:
        raise click.UsageError("--csv and --json: one of them.")
    parts = _parts(blocks)
    loaded, now = load_settings(config), real_now()
    clock = _zone(zone or loaded.timezone)
    span = span_of(since, until, now)
    scope = scope_of(known_gpu_names_of(loaded, gpu, data), count, spot, provider)
    series = load_hourly_lows(loaded, scope, *span, data)
    title = f"{gpu}{f' × {count}' if count else ''}{_SPOT[spot]}{f' at {provider}' if provider else ''}"
    shown = CalendarView(title, zone or loaded.timezone, series, calendar_of(series, clock, parts))
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(to_json(shown, gpu))
    elif as_csv:
        print_csv(shown)
    else:
        print_calendar(shown)
    if png and shown.found.hours:
        picture(png, shown)
    if data is None and not shown.found.hours:
        hint_at_older_prices(loaded, scope.gpus, provider, span[0])
    return Exit.DONE if shown.found.is_answered else Exit.CANNOT_TELL


_SPOT = {"no": "", "only": ", spot", "any": ", spot or not"}


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError) as fault:  # unknown, a folder, a path that leads out
        raise click.BadParameter(
            f'expected a time zone such as "Europe/Berlin": {name!r}', param_hint="--zone"
        ) from fault


def _parts(blocks: tuple[str, ...]) -> list[WeekPart]:
    """Raises click.BadParameter."""
    if len(blocks) > _MOST_BLOCKS:
        raise click.BadParameter(f"expected at most {_MOST_BLOCKS}", param_hint="--blocks")
    found = [_part(text) for text in blocks]
    if len({part.name for part in found}) < len(found):
        raise click.BadParameter("each needs a name of its own", param_hint="--blocks")
    return found


def _part(text: str) -> WeekPart:
    from gpuwatch.domain.analysis.calendar import week_part
    from gpuwatch.domain.market.text import clean
    from gpuwatch.domain.watches.windows import parse_window

    name, equals, window = text.partition("=")
    name = clean(name).strip()
    try:
        if not equals or not name or len(name) > _LONGEST_NAME:
            raise ValueError("expected NAME=WINDOW such as night=22:00-08:00 or weekend=Sat-Sun")  # noqa: TRY301
        return week_part(name, window.strip(), [parse_window(window)])
    except ValueError as fault:
        raise click.BadParameter(f"{text!r}: {fault}", param_hint="--blocks") from fault
