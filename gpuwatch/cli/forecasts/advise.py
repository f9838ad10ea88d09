"""`gpuwatch forecasts advise`: wait or buy before a deadline, based on the price history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, method_option, wants_method
from gpuwatch.cli.options import (
    VERIFIED,
    Between,
    PastOptions,
    completes,
    duration_option,
    json_option,
    past_options,
    settings_option,
)
from gpuwatch.cli.output import json_out, local
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.domain.market.figure_text import count_text, decimal_text
from gpuwatch.domain.market.money import dollars, per_gpu_hour
from gpuwatch.domain.setup.durations import format_duration

if TYPE_CHECKING:
    from gpuwatch.app.forecasts.advise import AdviceRequest, AdviceResult
    from gpuwatch.domain.forecasts.advice import Advice, WaitingSaving
    from gpuwatch.domain.forecasts.snipe import SnipeOdds
    from gpuwatch.settings import Settings

_MAX_HOURS = 30 * 24
_VERDICTS = {"buy_now": "BUY NOW", "wait": "WAIT", "either": "YOUR CALL"}


@click.command(cls=Command, examples=("gpuwatch forecasts advise 'H100 SXM' --hours 24 --deadline 2d",))
@click.argument("gpu", shell_complete=completes("gpus"))
@duration_option("--deadline", "deadline", "Time by which you need the GPU; up to 30d.", default="2d")
@click.option(
    "--hours", "job_hours", type=Between(min=0, min_open=True, max=100_000), default=24, show_default=True,
    help="Length of the job; used for the saving in dollars.",
)  # fmt: skip
@click.option(
    "--under",
    "under_usd",
    type=Between(min=0, min_open=True, max=1_000_000),
    default=None,
    metavar="USD",
    help="Show the odds of seeing an offer at or under this price.",
)
@duration_option("--poll-every", "poll_every_s", "Poll interval for the odds. Default: as configured.")
@click.option(
    "--record", is_flag=True, help="Record the forecast; `gpuwatch forecasts scores` compares it with the outcome."
)
@past_options("90d")
@VERIFIED
@method_option
@json_option
@settings_option
def advise(
    past: PastOptions, deadline: float, verified: bool, as_json: bool, settings: Settings, **options: Any
) -> int:
    """Wait or buy: the price to wait for before a deadline, computed from the history.

    With --data or --until, "now" is the newest hour of the history. Prices are per GPU-hour, commission included.

    Exit codes: 0 done, 2 usage, 3 the history is too short.
    """
    from gpuwatch.app.forecasts.advise import AdviceRequest, advice_json, give_advice
    from gpuwatch.bootstrap import real_now

    if deadline > _MAX_HOURS * 3600:
        raise click.BadParameter("expected at most 30d", param_hint="--deadline")
    prices = past.request(real_now(), verified=verified)
    request = AdviceRequest(deadline_s=deadline, is_until_now=past.until is None, **prices, **options)
    answered = give_advice(settings, request)
    if as_json:
        json_out(advice_json(request, answered))
    else:
        _print(request, answered, settings.timezone)
    if answered.advice is None:
        past.note_older_prices(settings, answered.gpus, request.since)
    return Exit.DONE if answered.advice else Exit.CANNOT_TELL


# --- for a person -----------------------------------------------------------------------------------------------------


def _print(request: AdviceRequest, answered: AdviceResult, zone: str) -> None:
    from gpuwatch.app.forecasts.advise import advice_sentence
    from gpuwatch.domain.forecasts.optimal_stopping import METHOD
    from gpuwatch.domain.history.price_series import step_name

    click.echo(advice_sentence(request, answered))
    advice = answered.advice
    if advice is not None:
        click.echo()
        _print_advice(advice, request)
    for line in _odds_lines(answered):
        click.echo(line)
    if advice is not None:
        click.echo()
        if wants_method():
            click.echo(f"Method: {METHOD}.")
        click.echo(
            f"{answered.source}: {advice.known_hours} polled {step_name(advice.step_h)}s of {advice.span_hours}, "
            f"from {local(answered.since, zone)} to {local(answered.until, zone)}."
        )
    for line in _record_lines(answered):
        click.echo(line)


def _record_lines(answered: AdviceResult) -> Iterator[str]:
    """How the record of earlier forecasts changed the advice, and whether this forecast is recorded."""
    past = answered.past
    if past is not None and (past.shrink < 1 or not past.trusts_optimal_stopping):
        adjustments = [f"savings are scaled to {past.shrink:.0%}"] if past.shrink < 1 else []
        adjustments += [] if past.trusts_optimal_stopping else ["optimal stopping is not used"]
        earlier = past.bought + past.missed
        yield f"Based on {earlier} earlier forecasts, {' and '.join(adjustments)}: gpuwatch forecasts scores."
    if answered.recorded is not None:
        yield f"Recorded as forecast {answered.recorded}; after its deadline, see: gpuwatch forecasts scores."


def _print_advice(advice: Advice, request: AdviceRequest) -> None:
    from gpuwatch.domain.forecasts.advice import limit_changes
    from gpuwatch.domain.forecasts.price_forecasts import RULE_TEXTS
    from gpuwatch.domain.history.price_series import step_name

    step = step_name(advice.step_h)
    click.echo(f"  needed     {_wanted(request)}, within {format_duration(request.hours * 3600)}")
    if advice.step_h > 1:
        period = format_duration(advice.hours * 3600)
        click.echo(
            f"  step       one {step}: the polls are too sparse for hourly steps; a wait of {period} is assessed"
        )
    click.echo(f"  verdict    {_VERDICTS[advice.verdict.value]}: {advice.why}")
    click.echo(f"  price now  {_usd(advice.now_usd)}\n  limit now  {_limit(advice.limit_usd)}")
    click.echo(f"  waiting    {_saving_text(advice.saving, advice.now_usd, request.job_hours)}\n")
    rows = [(format_duration(left * advice.step_h * 3600) if left else f"the last {step}", _limit(usd))
            for left, usd in limit_changes(advice)]  # fmt: skip
    moves = ", if the weekly median does not change" if advice.relative else ""
    if wants_method():
        click.echo(f"The rule: {RULE_TEXTS[advice.rule.value]}.")
    click.echo(f"The limit as the deadline approaches{moves}:")
    table((left("time left"), right("buy at or under")), rows)
    click.echo(
        f"\nPrices reached within the deadline, for waits that start near the current price ({advice.reached_starts}):"
    )
    shares = [(f"{share:.0%}", _usd(price)) for share, price in advice.reached]
    table((left("share of starts"), right("this price, or less")), shares)
    if any(price is None for _, price in advice.reached):
        click.echo("–: too few starts.")
    if advice.now_usd is not None and any(price == advice.now_usd for _, price in advice.reached):
        click.echo("That is the price now: too few starts reached a lower one.")


def _wanted(request: AdviceRequest) -> str:
    return f"{request.gpu} of a verified host" if request.scope.verified else request.gpu


def _saving_text(saving: WaitingSaving | None, now_usd: float | None, hours: float) -> str:
    if saving is None:
        return "the saving is unknown: the price was rarely above the limit"
    amount = "" if now_usd is None else f", {dollars(now_usd * saving.share * hours)} a GPU for {hours:g} h"
    return (
        f"saved {decimal_text(100 * saving.share)}% on average from such a price{amount}"
        f"\n  counted    {saving.hours} of {saving.starts} such starts, on "
        f"{count_text(saving.days, 'day')}; {saving.missed} of them "
        f"with no offer at the deadline{' (they pay the next offer)' if saving.missed else ''}; "
        f"{saving.unknown} unknown: not polled at the deadline, or the deadline is in the future"
        f"\n  your wait  {decimal_text(100 * saving.low)}% to {decimal_text(100 * saving.high)}%: "
        "95 % of single waits save no less (below 0: cost)"
    )


def _odds_lines(answered: AdviceResult) -> Iterator[str]:
    from gpuwatch.domain.forecasts.snipe import SNIPE_METHOD_TEXT

    if answered.under_usd is None:
        return
    yield f"\nOffers at or under {_usd(answered.under_usd)}:"
    snipe = answered.snipe
    if snipe is None:
        yield "  too few were observed to estimate how long they last"
        return
    yield f"  {snipe.lifetimes} appeared, {snipe.a_day:.1f} a day; half of them last longer than {_life(snipe)}"
    for odds in snipe.odds:
        every = format_duration(odds.every_s)
        yield (
            f"  polling every {every} sees {odds.chance:.1%} of them "
            f"({odds.chance_low:.1%} to {odds.chance_high:.1%}), {odds.a_day:.1f} a day"
        )
    spacing = _about(snipe.poll_spacing_s)
    yield f"  The history was polled every {spacing}: shorter-lived offers are not in it."
    if wants_method():
        yield f"  Method: {SNIPE_METHOD_TEXT}."


def _life(snipe: SnipeOdds) -> str:
    if snipe.median_s is None:
        return "was watched"
    low, high = ("?" if interval_s is None else _about(interval_s) for interval_s in snipe.median_interval_s)
    return f"{_about(snipe.median_s)} ({low} to {high})"


def _about(seconds: float) -> str:
    """A duration in its largest useful unit."""
    step = next((step for from_s, step in ((86_400, 3600), (3600, 600), (600, 60)) if seconds >= from_s), 1)
    return format_duration(round(seconds / step) * step)


def _usd(amount: float | None) -> str:
    return "–" if amount is None else per_gpu_hour(amount)


def _limit(amount: float | None) -> str:
    return "any price" if amount is None else per_gpu_hour(amount)
