"""`gpuwatch backtest`: what your watches would have done."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import completes, config_option, duration_option, json_option
from gpuwatch.cli.past import past_options
from gpuwatch.cli.png import png_option
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.backtest import Backtest, ReportProgress
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings

_DAY_S = 86_400.0


class _WatchFlags(NamedTuple):
    """A rule in place of the watches."""

    gpu: tuple[str, ...]
    max_price: str | None
    action: str | None
    max_runtime_s: float | None
    gpu_count: str | None
    spot: str | None

    @property
    def others(self) -> list[str]:
        """What was given of those that go with --gpu."""
        names = {"--max-price": self.max_price, "--action": self.action, "--max-runtime": self.max_runtime_s}
        names |= {"--count": self.gpu_count, "--spot": self.spot}
        return [name for name, value in names.items() if value is not None]


@click.command(
    cls=Command,
    examples=(
        "gpuwatch backtest h100-night",
        "gpuwatch backtest --gpu H100 --max-price 2.50 --action launch --max-runtime 24h",
        "gpuwatch backtest h100-night --sweep max_price=2.0:4.0:0.1",
    ),
)
@click.argument("names", nargs=-1, metavar="[WATCH]...", shell_complete=completes("watches"))
@click.option(
    "--gpu",
    multiple=True,
    help="Instead of the watches: a GPU family or model, such as H100; may be repeated.",
    shell_complete=completes("gpus"),
)
@click.option("--max-price", help="With --gpu: threshold, USD per GPU-hour, commission included.")
@click.option("--action", type=click.Choice(["alert", "launch"]), default=None, help="With --gpu: alert, or rent.")
@duration_option("--max-runtime", "max_runtime_s", "With --gpu: how long a launch lives, such as 24h.")
@past_options("30d")
@duration_option("--job", "job_s", "How long a launch is needed, where that is less than max_runtime: 6h.")
@duration_option("--deadline", "deadline_s", "How long you could have waited for a better price; default: 24h.")
@click.option("--sweep", metavar="max_price=FROM:TO:STEP", help="One watch at many thresholds: price against waiting.")
@click.option("--strict", is_flag=True, help="Refuse a watch with clauses that the history cannot judge.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV on standard output: a line for each event, or threshold.")
@png_option
@json_option
@config_option
@click.pass_context
def backtest(
    ctx: click.Context,
    names: tuple[str, ...],
    gpu: tuple[str, ...],
    max_price: str | None,
    action: str | None,
    max_runtime_s: float | None,
    count: str | None,
    spot: str,
    provider: str | None,
    since: str,
    until: str | None,
    data: Path | None,
    job_s: float | None,
    deadline_s: float | None,
    sweep: str | None,
    strict: bool,
    as_csv: bool,
    png: Path | None,
    as_json: bool,
    config: str | None,
) -> int:
    """What your watches would have done: the daemon's own decisions over recorded prices.

    With --gpu and --max-price it tests that one rule instead of your watches, on offers of one GPU unless --count says
    otherwise. Launches are computed as if dry_run were false and every order succeeded at once; budgets and limits
    apply.

    Exit codes: 0 done, 2 usage or settings are wrong, 3 nobody looked at the market in that time.
    """
    from gpuwatch.app.backtest import (
        BacktestOptions,
        BacktestPeriod,
        run_backtest,
        run_sweep,
    )
    from gpuwatch.bootstrap import real_now
    from gpuwatch.cli.past import hint_at_older_prices, moment

    if as_csv and as_json:
        raise click.UsageError("--csv and --json: one of them.")
    prices = _prices(sweep)
    is_spot_given = ctx.get_parameter_source("spot") is click.core.ParameterSource.COMMANDLINE
    flags = _WatchFlags(gpu, max_price, action, max_runtime_s, count, spot if is_spot_given else None)
    settings, watches = _watches(flags, names, prices, config)
    now = real_now()
    span = BacktestPeriod(
        since=moment(since, now), until=moment(until, now) if until else now, data=data, provider=provider
    )
    if span.since >= span.until:
        raise click.UsageError("--since must lie before --until.")
    job = None if job_s is None else timedelta(seconds=job_s)
    terms = BacktestOptions(job=job, deadline=timedelta(seconds=deadline_s or _DAY_S), strict=strict)
    with _bar() as stage:
        if prices:
            found = run_sweep(settings, watches[0], prices, span, terms, stage)
        else:
            found = run_backtest(settings, watches, span, terms, stage)
    is_sweep = bool(prices)
    if as_json or as_csv:
        _machine_readable(found, is_sweep, as_csv)
    else:
        _for_people(found, is_sweep, settings.timezone)
    if all(result is None for _, result in found.results):
        if data is None:
            hint_at_older_prices(settings, None, provider, span.since)
        return Exit.CANNOT_TELL
    if png:
        from gpuwatch.cli.backtest_show import picture

        picture(png, found, is_sweep)
    return Exit.DONE


def _machine_readable(found: Backtest, is_sweep: bool, as_csv: bool) -> None:
    from gpuwatch.app.backtest import backtest_json
    from gpuwatch.cli import backtest_rows
    from gpuwatch.cli.output import json_out

    if as_csv:
        backtest_rows.print_csv(found, is_sweep)
    else:
        json_out(backtest_json(found, is_sweep))


def _for_people(found: Backtest, is_sweep: bool, timezone: str) -> None:
    from gpuwatch.cli import backtest_show

    if is_sweep:
        backtest_show.show_sweep(found)
    else:
        backtest_show.show(found, timezone)


def _prices(text: str | None) -> tuple[Decimal, ...]:
    from gpuwatch.domain.backtest.threshold_sweep import parse_sweep

    if text is None:
        return ()
    try:
        return parse_sweep(text)
    except ValueError as fault:
        raise UsageError(f"--sweep: {fault}") from fault


def _watches(
    flags: _WatchFlags, names: Sequence[str], prices: Sequence[Decimal], config: str | None
) -> tuple[Settings, Sequence[Watch]]:
    from gpuwatch.bootstrap.settings_loading import load_settings

    if flags.gpu:
        if names:
            raise UsageError("a watch by its name, or --gpu: one of them")
        return _of_flags(flags, prices, config)
    if flags.others:
        raise UsageError(f"{' and '.join(flags.others)}: only with --gpu; a watch of the settings says it itself")
    settings = load_settings(config)
    known = {watch.name: watch for watch in settings.watches}
    if not known:
        raise UsageError("there is no [[watch]]: write one (gpuwatch init), or say --gpu H100 --max-price 3.50")
    for name in names:
        if name not in known:
            raise UsageError(f"there is no watch {name!r}; there are: {', '.join(known)}")
    chosen = [known[name] for name in dict.fromkeys(names)] or list(settings.watches)
    if prices and len(chosen) > 1:
        raise UsageError(f"--sweep takes one watch; name it: {', '.join(watch.name for watch in chosen)}")
    return settings, chosen


def _of_flags(flags: _WatchFlags, prices: Sequence[Decimal], config: str | None) -> tuple[Settings, Sequence[Watch]]:
    from msgspec.structs import replace

    from gpuwatch import settings
    from gpuwatch.domain.watches.watch import Action, LaunchSpec

    max_price = flags.max_price or (str(max(prices)) if prices else None)
    if max_price is None:
        raise UsageError("--gpu and --max-price go together: for example --gpu H100 --max-price 3.50")
    found = settings.from_flags(flags.gpu, max_price, count=flags.gpu_count, spot=flags.spot, config=config)
    watch = found.watches[0]
    if flags.max_runtime_s and flags.action == "alert":
        raise UsageError("--max-runtime goes with --action launch")
    if flags.action == "launch" or flags.max_runtime_s:
        launch = LaunchSpec(max_runtime_s=flags.max_runtime_s)
        watch = replace(watch, action=Action.LAUNCH, launch=launch)
    return found, [watch]


@contextmanager
def _bar() -> Iterator[ReportProgress]:
    """How far it is, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, of: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")

        def told(what: str, done: int, of: int) -> None:
            progress.update(task, description=what, completed=done, total=of or None)

        yield told
