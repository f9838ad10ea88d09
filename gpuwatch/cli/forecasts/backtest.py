"""`gpuwatch forecasts backtest`: replay watches over recorded prices."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, method_option, wants_method
from gpuwatch.cli.chart import line_chart
from gpuwatch.cli.html import html_option, png_option, recorded_page, refuse_html_with, save_page, save_picture
from gpuwatch.cli.market.offers import gpu_text
from gpuwatch.cli.options import (
    PastOptions,
    completes,
    config_option,
    csv_option,
    duration_option,
    gpu_option,
    json_option,
    past_options,
)
from gpuwatch.cli.output import Recording, echo, json_out, progress, record_output
from gpuwatch.cli.terminal_tables import csv_out, left, right, table
from gpuwatch.domain.market.figure_text import count_text, decimal_text
from gpuwatch.domain.market.money import per_gpu_hour
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.forecasts.backtest import Backtest
    from gpuwatch.app.history.svg_charts import SvgChart
    from gpuwatch.domain.forecasts.backtest.replay_result import BacktestEvent, BacktestResult, WaitStatistics
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.domain.watches.watch import Watch

_NO_POLLS = "no polls in that time (`gpuwatch run` was not running, or did not poll this GPU)"
_MAX_EVENTS = 20


_STEPS = (
    right("max_price"),
    right("held", drop=3),
    right("fires", drop=2),  # launches if the watch rents
    right("first", drop=4),
    right("in time", drop=1),
    right("median wait"),
    right("mean paid"),
    right("at once", drop=1),
)


def _thresholds(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[Decimal, ...]:
    from gpuwatch.domain.forecasts.backtest.replay_result import parse_sweep

    try:
        return () if text is None else parse_sweep(text)
    except ValueError as fault:
        raise UsageError(f"--sweep: {fault}") from fault


@click.command(
    cls=Command,
    examples=(
        "gpuwatch forecasts backtest h100-night",
        "gpuwatch forecasts backtest --gpu H100 --max-price 2.50 --action launch --max-runtime 24h",
        "gpuwatch forecasts backtest h100-night --sweep max_price=2.0:4.0:0.1",
    ),
)
@click.argument("names", nargs=-1, metavar="[WATCH]...", shell_complete=completes("watches"))
@gpu_option(
    "--gpu",
    "Test a single rule instead of the watches: a GPU family or model; may be repeated.",
    multiple=True,
    metavar=None,
)
@click.option("--max-price", metavar="USD", help="With --gpu: threshold per GPU-hour, commission included.")
@click.option("--action", type=click.Choice(["alert", "launch"]), default=None, help="With --gpu: alert, or rent.")
@duration_option("--max-runtime", "max_runtime_s", "With --gpu: runtime of a launch, such as 24h.")
@past_options("30d")
@duration_option("--job", "job_s", "Runtime that the job needs, if less than max_runtime.")
@duration_option("--deadline", "deadline_s", "Longest wait for a better price. Default: 24h.")
@click.option(
    "--sweep",
    "thresholds",
    metavar="max_price=FROM:TO:STEP",
    callback=_thresholds,
    help="Test one watch at many thresholds.",
)
@click.option("--strict", is_flag=True, help="Reject a watch with conditions that the history cannot evaluate.")
@csv_option("Print CSV: one line per event or per threshold.")
@png_option
@html_option
@method_option
@json_option
@config_option
def backtest(
    past: PastOptions,
    as_csv: bool,
    png: Path | None,
    dark: bool,
    html: Path | None,
    as_json: bool,
    config: str | None,
    **options: Any,
) -> int:
    """Replay your watches: apply the daemon's own decisions to recorded prices.

    With --gpu and --max-price, test a single rule instead of your watches, on offers of one GPU by default (--count).
    Launches are simulated as if dry_run were false and every order succeeded immediately. Budgets and limits
    apply.

    Exit codes: 0 done, 2 usage or settings are wrong, 3 the market was not polled in that time.
    """
    from gpuwatch.app.forecasts.backtest import BacktestRequest, backtested_watches, run_backtest
    from gpuwatch.bootstrap import real_now

    refuse_html_with(html, as_data=as_csv or as_json)
    is_spot_given = click.get_current_context().get_parameter_source("spot") is click.core.ParameterSource.COMMANDLINE
    spot = past.spot if is_spot_given else None
    since, until = past.span(real_now())
    request = BacktestRequest(
        count=past.count, spot=spot, provider=past.provider, since=since, until=until, data=past.data, **options
    )
    settings, watches = backtested_watches(request, config)
    with progress() as stage:
        outcome = run_backtest(settings, watches, request, stage)
    is_sweep = bool(request.thresholds)
    with record_output() as recording:
        if as_json or as_csv:
            _print_machine_readable(outcome, is_sweep, as_csv)
        elif is_sweep:
            _print_sweep(outcome)
        else:
            _print_watches(outcome, settings.timezone)
    results = [(watch, result) for watch, result in outcome.results if result is not None]
    if not results:
        past.note_older_prices(settings, None, since)
        return Exit.CANNOT_TELL
    heading = f"backtest of {', '.join(dict.fromkeys(watch.name for watch, _ in results))}"
    charts = _charts(results, is_sweep, ZoneInfo(settings.timezone)) if png or html else []
    if png:
        notes = _cheapest_lines(results) if is_sweep else [f"times in {settings.timezone}"]
        save_picture(png, heading, charts, notes, dark=dark)
    if html:
        save_page(html, _page(heading, results, is_sweep, charts, recording))
    return Exit.DONE


def _charts(results: Sequence[tuple[Watch, BacktestResult]], is_sweep: bool, zone: ZoneInfo) -> list[SvgChart | None]:
    """Prices and events of each watch, or for a sweep the price paid against the wait."""
    return [_paid_vs_wait_chart(results)] if is_sweep else [_price_chart(watch, each, zone) for watch, each in results]


def _page(
    heading: str,
    results: Sequence[tuple[Watch, BacktestResult]],
    is_sweep: bool,
    charts: Sequence[SvgChart | None],
    recording: Recording,
) -> str:
    """The HTML page of a backtest."""
    verdict = [
        answer
        for answer in recording.answers
        if isinstance(answer, str) and answer.startswith(("  mean price", "  begun"))
    ]
    if is_sweep:
        verdict = [*_cheapest_lines(results), *verdict]
    return recorded_page(heading, verdict or ["no offers in time: no mean price available"], charts, recording)


def _price_chart(watch: Watch, result: BacktestResult, zone: ZoneInfo) -> SvgChart | None:
    from gpuwatch.app.history.svg_charts import SvgLine, SvgMarks, step_chart

    times, prices = result.track()
    taken = [event for event in result.events if event.launched] or result.events
    line = SvgLine("cheapest matching offer", [price if isfinite(price) else None for price in prices])
    return step_chart(
        f"{watch.name}: USD per GPU-hour, commission included",
        [at.astimezone(zone) for at in times],
        [line],
        marks=SvgMarks(
            "rented" if taken and taken[0].launched else "alerted", [(event.at, event.usd_gpu_hour) for event in taken]
        ),
        limit=float(watch.max_price_usd_gpu_hour),
    )


def _cheapest_lines(results: Sequence[tuple[Watch, BacktestResult]]) -> list[str]:
    paid = [(usd, watch) for watch, result in results if (usd := result.waiting.paid_usd_gpu_hour) is not None]
    if not paid:
        return []
    usd, watch = min(paid, key=lambda entry: entry[0])
    limit = per_gpu_hour(watch.max_price_usd_gpu_hour, most=6)
    return [f"The lowest mean price, {per_gpu_hour(usd)}, was reached with a limit of {limit}."]


def _paid_vs_wait_chart(results: Sequence[tuple[Watch, BacktestResult]]) -> SvgChart | None:
    """Price paid against the median wait; a label says the threshold and the share of starts in time."""
    from gpuwatch.app.history.svg_charts import point_chart

    labels: dict[tuple[float, float], list[str]] = {}  # thresholds with the same result share one point
    for watch, result in results:
        wait_s, paid = result.waiting.median_s, result.waiting.paid_usd_gpu_hour
        if wait_s is not None and paid is not None:
            labels.setdefault((wait_s / 3600, paid), []).append(_threshold_label(watch, result))
    points = [(wait_h, paid, ", ".join(texts)) for (wait_h, paid), texts in labels.items()]
    return point_chart("price paid against wait, by max_price", points, "median wait in hours", "mean GPU price, $")


def _threshold_label(watch: Watch, result: BacktestResult) -> str:
    share = result.waiting.within_deadline
    return f"{watch.max_price_usd_gpu_hour:f}" + ("" if share is None else f" ({share:.0%} in time)")


# --- for programs -----------------------------------------------------------------------------------------------------


def _print_machine_readable(backtest: Backtest, is_sweep: bool, as_csv: bool) -> None:
    from gpuwatch.app.forecasts.backtest_report import backtest_event_json, backtest_json, step_json

    if not as_csv:
        json_out(backtest_json(backtest, is_sweep))
    elif is_sweep:
        csv_out([step_json(watch, result) for watch, result in backtest.results])
    else:
        csv_out(
            [
                {"watch": watch.name, **_flatten(backtest_event_json(event))}
                for watch, result in backtest.results
                for event in (result.events if result else ())
            ]
        )


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    later = row.pop("cheaper_later") or {"at": None, "price_usd_gpu_hour": None}
    return row | {"cheaper_at": later["at"], "cheaper_usd_gpu_hour": later["price_usd_gpu_hour"]}


# --- for people -------------------------------------------------------------------------------------------------------


def _print_watches(backtest: Backtest, timezone: str) -> None:
    """The actions of each watch, and their value."""
    from gpuwatch.app.forecasts.backtest_report import backtest_sentence, rule_text, summary_lines

    zone = ZoneInfo(timezone)
    for watch, result in backtest.results:
        if result is not None:
            echo(backtest_sentence(watch, result))
    if any(result is not None for _, result in backtest.results):
        click.echo()
    for number, (watch, result) in enumerate(backtest.results):
        if number:
            click.echo()
        title = f"{watch.name}: {rule_text(watch)}"
        if result is None:
            echo(f"{title}: {_NO_POLLS}")
            continue
        _events(result, title, zone)
        for line in summary_lines(watch, result, backtest, zone):
            echo(f"  {line}")
    _print_footer(backtest)


def _events(result: BacktestResult, title: str, zone: ZoneInfo) -> None:
    from gpuwatch.app.forecasts.backtest_report import main_events, time_text, wait_text

    if not result.events:
        echo(f"{title}: it never fired")
        return
    events = main_events(result)
    is_stated = len({event.did for event in events}) == 1  # the title already states what it did
    columns = (
        left("when", lambda event: time_text(event.at, zone)),
        left("did", lambda event: None if is_stated else event.did, drop=3, optional=True),
        left("why", lambda event: event.reason.replace("_", " "), drop=4),
        left("offer", lambda event: gpu_text(event.offer)),
        left("where", lambda event: _where(event.offer), drop=2),
        right("price", lambda event: per_gpu_hour(event.usd_gpu_hour, least=4)),
        right("waited", lambda event: wait_text(event.waited), drop=5),
        right("cheaper later", _cheaper_later, drop=6),
    )
    table(columns, events[:_MAX_EVENTS], title=title)
    if len(events) > _MAX_EVENTS:
        echo(f"  … and {len(events) - _MAX_EVENTS} more (--json and --csv show all)")


def _where(offer: Offer) -> str:
    return ", ".join(part for part in (offer.provider, offer.region or offer.country) if part)


def _cheaper_later(event: BacktestEvent) -> str | None:
    from gpuwatch.app.forecasts.backtest_report import wait_text

    later = event.cheaper_later
    return None if later is None else f"{per_gpu_hour(later.usd_gpu_hour)} +{wait_text(later.at - event.at)}"


def _print_sweep(backtest: Backtest) -> None:
    """The trade-off between a lower price and a longer wait."""
    from gpuwatch.app.forecasts.backtest_report import ignored_text, starts_text, wait_text
    from gpuwatch.domain.watches.watch import Action

    results = [(watch, result) for watch, result in backtest.results if result is not None]
    watch = backtest.results[0][0]
    title = f"{watch.name}: {', '.join(watch.gpu)}, {watch.action.value}"
    if not results:
        echo(f"{title}: {_NO_POLLS}")
        return
    for line in _cheapest_lines(results):
        echo(f"{line}\n")
    is_launching = watch.action is Action.LAUNCH
    columns = [
        column._replace(heading="launches") if is_launching and column.heading == "fires" else column
        for column in _STEPS
    ]
    table(columns, [_step_row(watch, result) for watch, result in results], title=title)
    xs = [float(watch.max_price_usd_gpu_hour) for watch, _ in results]
    ys = [None if (wait_s := result.waiting.median_s) is None else wait_s / 3600 for _, result in results]
    if len({y for y in ys if y is not None}) > 1:
        click.echo()
        click.echo(line_chart(xs, {"median wait": ys}, "median wait in hours, by max_price"))
    first = results[0][1]
    span = wait_text(backtest.deadline)
    echo(f"  {count_text(first.polls, 'poll')}; held: share of polls at which it could have rented")
    echo(f"  {starts_text(first.waiting)}")
    echo(f"  in time: share of the counted polls that found an offer within {span};")
    echo(f"  mean paid: after {span} it takes the cheapest offer; at once: compared with buying immediately")
    if any(not result.waiting.is_shown for _, result in results):
        echo("  (…): may be chance, or too few days; 95 % confidence, block bootstrap over days")
    if clauses := backtest.ignored.get(watch.name):
        echo(f"  {ignored_text(clauses)}")
    _print_footer(backtest)


def _step_row(watch: Watch, result: BacktestResult) -> tuple[str, ...]:
    from gpuwatch.app.forecasts.backtest_report import wait_text
    from gpuwatch.domain.watches.watch import Action

    first, waiting = result.first, result.waiting
    return (
        f"{watch.max_price_usd_gpu_hour:f}",
        f"{result.held:.0%}",
        str(result.launches if watch.action is Action.LAUNCH else result.fires),
        "–" if first is None else wait_text(first.waited),
        "–" if waiting.within_deadline is None else f"{waiting.within_deadline:.0%}",
        "–" if waiting.median_s is None else wait_text(waiting.median_s),
        "–" if waiting.paid_usd_gpu_hour is None else f"{waiting.paid_usd_gpu_hour:.4f}",
        "–" if waiting.saved is None else _comparison_text(waiting),
    )


def _print_footer(backtest: Backtest) -> None:
    echo(f"\n{backtest.source}: {count_text(backtest.intervals, 'price')}, {count_text(backtest.polls, 'poll')}.")
    if wants_method():
        echo("Method: replay of the recorded polls through the daemon's decisions; an offer stays on sale until a")
        echo("poll no longer lists it; launches start immediately and run to their end.")


def _comparison_text(waiting: WaitStatistics) -> str:
    text = f"{decimal_text(-100 * (waiting.saved or 0.0), 1, '+')}%"
    return text if waiting.is_shown or not waiting.saved else f"({text})"
