"""`gpuwatch forecasts scores`: how accurate the forecasts of `advise` and `max_price = "auto"` were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command, method_option, wants_method
from gpuwatch.cli.options import (
    json_option,
    settings_option,
)
from gpuwatch.cli.output import json_out, local

if TYPE_CHECKING:
    from gpuwatch.app.forecasts.scores import ForecastScores
    from gpuwatch.domain.forecasts.price_forecasts import ForecastRecord, PriceComparison
    from gpuwatch.settings import Settings

_NAMES = {"advise": "gpuwatch forecasts advise --record", "auto": 'max_price = "auto"'}


@click.command(cls=Command, examples=("gpuwatch forecasts scores", "gpuwatch forecasts scores --json"))
@method_option
@json_option
@settings_option
def scores(as_json: bool, settings: Settings) -> None:
    """Show how accurate past forecasts were: forecast and observed shares and savings.

    Forecasts are recorded by `gpuwatch forecasts advise --record`, and by the daemon for each watch with
    max_price = "auto". They are scored after their deadline.

    Exit codes: 0 done, 2 settings are wrong, 3 there is no database, or it has an older schema.
    """
    from gpuwatch.app.forecasts.scores import forecast_scores, scores_json

    scores = forecast_scores(settings)
    if as_json:
        json_out(scores_json(scores))
        return
    if not scores.records:
        click.echo('No forecasts yet: gpuwatch forecasts advise GPU --record, or a watch with max_price = "auto".')
        return
    _print(scores, settings.timezone)


def _print(scores: ForecastScores, zone: str) -> None:
    from gpuwatch.app.forecasts.scores import ASSUMED, scores_sentence

    click.echo(f"{scores_sentence(scores)}\n")
    for source, record in scores.records.items():
        click.echo(f"{_NAMES[source.value]}: {_counts(record)}")
        for line in _lines(record):
            click.echo(f"  {line}")
        click.echo()
    assumed = f" Assumed: {'; '.join(ASSUMED)}." if wants_method() else ""
    click.echo(f"Forecasts since {local(scores.since, zone)}.{assumed}")


def _counts(record: ForecastRecord) -> str:
    scored = record.bought + record.missed
    return (
        f"{record.made} forecasts; {scored} scored, {record.missed} of them with no offer at the deadline; "
        f"{record.open} still open; {record.unknown} unknown (not polled at the deadline)"
    )


def _lines(record: ForecastRecord) -> Iterator[str]:
    if not record.bought + record.missed:
        return
    yield f"{record.independent} of the scored forecasts do not overlap; the others repeat their evidence"
    for bin_ in record.calibration:
        yield f"forecast {bin_.stated:.0%}: observed {bin_.reached / bin_.counted:.0%} (n = {bin_.counted})"
    if record.promised is not None and record.realised is not None:
        yield (
            f"forecast saving {record.promised:.1%}; realised {record.realised:.1%} (n = {record.savings}); "
            f"{record.within} of {record.ranges} single waits fell within their 95 % range"
        )
    if record.shrink < 1:
        yield f"savings are scaled to {record.shrink:.0%} of the history's estimate, based on this record"
    yield _comparison_row("buying immediately", record.at_once)
    yield _comparison_row("a fixed limit at the median", record.median)
    if not record.trusts_optimal_stopping:
        yield "optimal stopping cost more than the fixed median: gpuwatch uses the simple rules instead"


def _comparison_row(rule: str, comparison: PriceComparison) -> str:
    if comparison.saved is None:
        return f"compared with {rule}: nothing to compare"
    direction = "less" if comparison.saved >= 0 else "more"
    return f"paid {abs(comparison.saved):.1%} {direction} than by {rule} (n = {comparison.counted})"
