"""Options of the commands that ask the past: which GPU, since when, and from where."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.options import completes

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.scope import MarketFilter
    from gpuwatch.settings import Settings

Command = Callable[..., Any]
_FIRST_YEAR = 2000


def past_options(default_since: str) -> Callable[[Command], Command]:
    """`--count`, `--spot`, `--provider`, `--since`, `--until`, `--data`; they arrive as `count: str | None`,
    `spot: str`, `provider: str | None`, `since: str`, `until: str | None`, `data: Path | None`.

    Of a file all counts, where no `--since` is given: it ended long ago as a rule.
    """

    def since_or_default(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
        return value or ("all" if ctx.params.get("data") else default_since)

    def added(command: Command) -> Command:
        for option in reversed(_OPTIONS):
            command = option(command)
        return click.option(
            "--since",
            default=None,
            callback=since_or_default,
            help=f"{_SINCE} Default: {default_since}; of a file, all.",
        )(command)

    return added


class _Spot(click.Choice[str]):
    """Says what to do where the word behind `--spot` was meant for something else."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.fail(f"{value!r} is none of no, only, any; a GPU's name stands before --spot.", param, ctx)
        return str(super().convert(value, param, ctx))


_SINCE = 'How far back ("30d", "12h"), a day ("2026-03-01"), or "all".'
_OPTIONS = (
    click.option("--count", default=None, metavar="N|A-B", help="How many GPUs an offer has. Default: any number."),
    click.option(
        "--spot",
        type=_Spot(["no", "only", "any"]),
        default="no",
        is_flag=False,
        flag_value="only",
        show_default=True,
        help='Interruptible; without a word behind it, "only".',
    ),
    click.option(
        "--provider",
        default=None,
        help="Only this provider; NAME:listed for list prices.",
        shell_complete=completes("providers"),
    ),
    click.option("--until", default=None, help="Up to this day, or so long ago; default: now."),
    click.option(
        "--data",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        default=None,
        is_eager=True,  # --since asks whether it is there
        help="A file of price rows (CSV, gzipped or not, or Parquet) instead of the store.",
    ),
)


def span_of(since: str, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    """From when to when. A duration counts back from now; where `until` names a day, `since` counts back from that day.

    Raises click.BadParameter.
    """
    end = now if until is None else moment(until, now)
    is_day = until is not None and moment(until, now + timedelta(days=1)) == end
    end = min(end, now)
    start = moment(since, end if is_day else now)
    if start >= end:
        raise click.BadParameter("--since must lie before --until.")
    return start, end


def hint_at_older_prices(
    settings: Settings, gpus: tuple[str, ...] | None, provider: str | None, since: datetime
) -> None:
    """Where the store holds nothing of the time that was asked about, but of the time before: from when that is.

    What was imported is older than any default of `--since`, as a rule.
    """
    from gpuwatch.app.past_prices import newest_price
    from gpuwatch.cli.output import note

    newest = newest_price(settings, gpus, provider)
    if newest is not None and newest < since:
        day = newest + timedelta(days=1)
        note(f"the store's newest price is of {newest:%Y-%m-%d}: --until {day:%Y-%m-%d}, or --since all")


def moment(text: str, now: datetime) -> datetime:
    """A day, a time, a duration back from now, or "all". Raises click.BadParameter."""
    from datetime import UTC

    from gpuwatch.domain.watches.durations import parse_duration

    if text == "all":
        return datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC)
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        return now - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as fault:
        raise click.BadParameter(
            f'expected a duration such as "30d", a day such as "2026-03-01", or "all": {text!r}'
        ) from fault


def scope_of(gpus: tuple[str, ...] | None, count: str | None, spot: str, provider: str | None) -> MarketFilter:
    """The part of the market that the options name. Raises click.BadParameter."""
    from gpuwatch.domain.analysis.scope import MarketFilter

    low, high = _counts(count)
    is_spot = {"no": False, "only": True, "any": None}[spot]
    return MarketFilter(gpus=gpus, provider=provider, gpu_count_min=low, gpu_count_max=high, spot=is_spot)


def _counts(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    low, dash, high = text.partition("-")
    if not low.isdecimal() or int(low) < 1 or (dash and (not high.isdecimal() or int(high) < int(low))):
        raise click.BadParameter(f'expected a number of GPUs such as "8", or a range such as "1-4": {text!r}')
    return int(low), int(high) if dash else int(low)
