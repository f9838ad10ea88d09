"""Options that several commands share."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from contextlib import redirect_stderr
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.history.market_history import MarketFilter
    from gpuwatch.settings import Settings

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SPOT_CHOICES = ("no", "only", "any")
_FIRST_YEAR = 2000


class Between(click.FloatRange):
    """A finite number in a range; click accepts "nan" in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click.BadParameter."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


POSITIVE = Between(min=0, min_open=True)


def as_struct(name: str, kind: type[Any], *options: Function) -> Decorator:
    """Add several options that arrive as one `kind` under `name`."""

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def call(*args: Any, **kwargs: Any) -> Any:
            fields = {key: kwargs.pop(key) for key in kind.__annotations__}
            return command(*args, **kwargs, **{name: kind(**fields)})

        for option in reversed(options):
            call = option(call)
        return call

    return decorate


def completes(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Complete names in a shell; an error completes nothing and prints nothing.

    Args:
        kind: a function of `gpuwatch.app.setup.completion`.
    """

    def complete_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            with redirect_stderr(io.StringIO()):
                from gpuwatch.app.setup import completion

                config = ctx.params.get("config") or ctx.find_root().params.get("config")
                names: list[str] = getattr(completion, kind)(config)
        except Exception:
            return []
        return [name for name in names if name.lower().startswith(incomplete.lower())]

    return complete_names


def config_option(command: Function) -> Function:
    """`--config FILE`, also accepted before the command's name; arrives as `config: str | None`."""
    return click.option(
        "--config", metavar="FILE", type=click.Path(dir_okay=False), callback=_config, help="Settings file."
    )(command)


def _config(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    root = ctx.find_root()
    root.obj = value or root.obj  # a group's --config applies to its subcommands
    path: str | None = root.obj
    return path


def settings_option(command: Function, *, for_stopping: bool = False, all_warnings: bool = False) -> Function:
    """`--config FILE`; arrives loaded as `settings: Settings`, after all options are valid."""

    @functools.wraps(command)
    def call(*args: Any, config: str | None, **kwargs: Any) -> Any:
        from gpuwatch.bootstrap.settings_loading import load_settings

        settings = load_settings(config, for_stopping=for_stopping, all_warnings=all_warnings)
        return command(*args, settings=settings, **kwargs)

    return config_option(call)


stopping_settings_option = functools.partial(settings_option, for_stopping=True)
all_warnings_settings_option = functools.partial(settings_option, all_warnings=True)


def json_option(command: Function) -> Function:
    """`--json`; arrives as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, callback=_of_group_too, help="Print JSON.")(command)


def _of_group_too(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    """Whether it is set here or for the group: a group's --json applies to its subcommands."""
    return value or (ctx.parent is not None and bool(ctx.parent.params.get("as_json")))


def csv_option(text: str = "Print CSV.") -> Decorator:
    """`--csv`, mutually exclusive with `--json`; arrives as `as_csv: bool`."""

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def call(*args: Any, as_csv: bool, as_json: bool, **kwargs: Any) -> Any:
            if as_csv and as_json:
                raise click.UsageError("use either --csv or --json.")
            return command(*args, as_csv=as_csv, as_json=as_json, **kwargs)

        return click.option("--csv", "as_csv", is_flag=True, help=text)(call)

    return decorate


def provider_option(text: str = "Provider. Default: the only enabled provider.", **more: Any) -> Decorator:
    """`--provider NAME`, with shell completion."""
    return click.option("--provider", metavar="NAME", shell_complete=completes("providers"), help=text, **more)


def group_option(text: str) -> Decorator:
    """`--group NAME` of watches, with shell completion."""
    return click.option("--group", metavar="NAME", shell_complete=completes("groups"), help=text)


def value_option(
    flag: str, kind: click.ParamType[Any], text: str, default: Any = None, *, name: str | None = None, **more: Any
) -> Decorator:
    """An option with a value; the help shows its default, if any.

    Args:
        name: parameter name; None: derived from the flag.
    """
    names = (flag, name) if name else (flag,)
    has_default = default is not None
    return click.option(*names, type=kind, default=default, show_default=has_default, help=text, **more)


def gpu_option(flag: str, text: str, **more: Any) -> Decorator:
    """A GPU name, with shell completion."""
    return click.option(
        flag, **({"metavar": "GPU", "default": None} | more), shell_complete=completes("gpus"), help=text
    )


def duration_option(flag: str, name: str, text: str, default: str | None = None) -> Decorator:
    """A positive duration such as `2h`; arrives in seconds as `name: float | None`."""
    return click.option(
        flag, name, metavar="DURATION", default=default, show_default=default is not None, callback=_seconds, help=text
    )


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from gpuwatch.domain.setup.durations import EXPECTED_DURATION, parse_duration

    if value is None:
        return None
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not seconds:
        raise click.BadParameter(f"expected {EXPECTED_DURATION}, above 0")
    return seconds


# --- current prices ---------------------------------------------------------------------------------------------------

POLL = click.option("--poll", "--now", "poll", is_flag=True, help="Poll the providers instead of reading the store.")
CURRENT_DATA = click.option(
    "--data", type=FILE, default=None, help="Read the newest poll of this file instead of the store."
)
LISTED = click.option("--listed", is_flag=True, help="Include list prices, without proof of stock.")

VERIFIED = click.option("--verified", is_flag=True, help="Only verified hosts.")
# --- past prices -----------------------------------------------------------------------------------------------------


class PastOptions(msgspec.Struct, frozen=True):
    """The recorded prices that a command reads."""

    count: str | None
    spot: str
    provider: str | None
    since: str
    until: str | None
    data: Path | None

    def scope(self, gpus: tuple[str, ...] | None = None) -> MarketFilter:
        """The market segment. Raises click.BadParameter."""
        from gpuwatch.domain.history.market_history import MarketFilter

        low, high = _counts(self.count)
        spot = {"no": False, "only": True, "any": None}[self.spot]
        return MarketFilter(gpus=gpus, provider=self.provider, gpu_count_min=low, gpu_count_max=high, spot=spot)

    def span(self, now: datetime) -> tuple[datetime, datetime]:
        """First and last moment. A duration counts back from now, or from the day given by `until`.

        Includes rows stored just now: times are stored in whole seconds, and the last moment is exclusive.

        Raises click.BadParameter.
        """
        newest = now.replace(microsecond=0) + timedelta(seconds=1)
        end = newest if self.until is None else moment(self.until, now)
        is_day = self.until is not None and moment(self.until, now + timedelta(days=1)) == end
        end = min(end, newest)
        start = moment(self.since, end if is_day else now)
        if start >= end:
            raise click.BadParameter("--since must be before --until.")
        return start, end

    def request(self, now: datetime, *, verified: bool = False) -> dict[str, Any]:
        """Arguments common to all requests for recorded prices: `scope` (of all GPUs), `since`, `until`, `data`.

        Raises click.BadParameter.
        """
        since, until = self.span(now)
        scope = msgspec.structs.replace(self.scope(), verified=verified)
        return {"scope": scope, "since": since, "until": until, "data": self.data}

    def title(self, gpu: str) -> str:
        """The GPU with its filters, for a heading."""
        count = f" × {self.count}" if self.count else ""
        return gpu + count + {"no": "", "only": ", spot", "any": ", spot or on demand"}[self.spot]

    def note_older_prices(self, settings: Settings, gpus: tuple[str, ...] | None, since: datetime) -> None:
        """Note on standard error how old the store's newest price is, if it precedes the requested period.

        Imported prices are usually older than any default of `--since`.
        """
        from gpuwatch.app.history.past_prices import newest_price

        newest = None if self.data else newest_price(settings, gpus, self.provider)
        if newest is not None and newest < since:
            day = newest + timedelta(days=1)
            click.echo(
                f"the newest price in the store is from {newest:%Y-%m-%d}; try --until {day:%Y-%m-%d} or --since all",
                err=True,
            )


class _Spot(click.Choice[str]):
    """Reports a clear error if the value after `--spot` is a GPU name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.fail(f"expected no, only or any, got {value!r}; write the GPU's name before --spot.", param, ctx)
        return str(super().convert(value, param, ctx))


def past_options(default_since: str, default_spot: str = "no") -> Decorator:
    """`--count`, `--spot`, `--provider`, `--since`, `--until`, `--data`; they arrive as `past: PastOptions`.

    Without `--since`, a file is read as a whole, because most files end long before now.
    """

    def since_or_default(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
        return value or ("all" if ctx.params.get("data") else default_since)

    default = "all" if default_since == "all" else f"{default_since} (with --data: all)"
    since = click.option(
        "--since",
        default=None,
        callback=since_or_default,
        help=f'Start: "30d", "12h", a day ("2026-03-01"), or "all". Default: {default}.',
    )
    spot = click.option(
        "--spot",
        type=_Spot(SPOT_CHOICES),
        default=default_spot,
        is_flag=False,
        flag_value="only",
        show_default=True,
        help="Spot (interruptible) offers. `--spot` alone means spot offers only.",
    )
    return as_struct("past", PastOptions, since, spot, *_PAST_OPTIONS)


_PAST_OPTIONS = (
    click.option("--count", default=None, metavar="N|A-B", help="Number of GPUs in an offer. Default: any."),
    provider_option("Only this provider; NAME:listed selects its list prices."),
    click.option("--until", default=None, help='End: a day, or a duration back from now ("2d"). Default: now.'),
    click.option(
        "--data",
        type=FILE,
        default=None,
        is_eager=True,  # --since depends on it
        help="Read this file of price rows (CSV, .csv.gz or Parquet) instead of the store.",
    ),
)


def moment(text: str, now: datetime) -> datetime:
    """A day, a time, a duration back from now, or "all". Raises click.BadParameter."""
    from datetime import UTC

    from gpuwatch.domain.setup.durations import parse_duration

    if text == "all":
        return datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC)
    try:
        parsed = datetime.fromisoformat(text)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        return now - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f'expected a duration such as "30d", a day such as "2026-03-01", or "all", got {text!r}'
        ) from error


def _counts(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    low, dash, high = text.partition("-")
    if not low.isdecimal() or int(low) < 1 or (dash and (not high.isdecimal() or int(high) < int(low))):
        raise click.BadParameter(f'expected a number of GPUs such as "8", or a range such as "1-4", got {text!r}')
    return int(low), int(high) if dash else int(low)


# --- money ------------------------------------------------------------------------------------------------------------

_USD_MAX = Decimal(10**9)


class Usd(click.ParamType[Decimal]):
    """Dollars, exact as typed."""

    name = "text"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        """Raises UsageError."""
        if isinstance(value, Decimal):
            return value
        try:
            amount = Decimal(value.strip().removeprefix("$"))
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite() or not (0 <= amount <= _USD_MAX) or (not amount and not self._zero):
            expected = "from 0 on" if self._zero else "above 0"
            raise UsageError(f"{_flag(param)} {value!r}: expected USD {expected}, such as 3.50")
        return amount


class Percents(click.ParamType[tuple[Decimal, ...]]):
    """One percentage or a range, "40-60"; "none" and "" mean no percentage."""

    name = "text"

    def __init__(self, limit: int = 100) -> None:
        self._most = limit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Decimal, ...]:
        """Raises UsageError."""
        if isinstance(value, tuple):
            return value
        if value.strip().lower() in {"", "none", "0"}:
            return ()
        try:
            percents = tuple(Decimal(part.strip().removesuffix("%")) for part in value.split("-"))
        except InvalidOperation:
            percents = ()
        if not 1 <= len(percents) <= 2 or not all(
            percent.is_finite() and 0 <= percent < self._most for percent in percents
        ):
            expected = f"percent under {self._most}, such as 40 or 40-60, or none"
            raise UsageError(f"{_flag(param)} {value!r}: expected {expected}")
        return tuple(sorted(set(percents)))


def _flag(param: click.Parameter | None) -> str:
    return param.opts[0] if param else ""
