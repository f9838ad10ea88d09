"""What `gpuwatch calendar` prints: a map of the week, what is proven, CSV, JSON, a picture."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuwatch.cli.tables import left, right
from gpuwatch.domain.analysis.calendar import (
    ALPHA,
    CLAIMED_PERCENT,
    HOURS_METHOD,
    METHOD,
    Calendar,
    CalendarEffect,
    EffectVerdict,
    HourEffect,
)
from gpuwatch.domain.market.money import price_text, usd_number

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.hour_of_week import HourOfWeekPrice
    from gpuwatch.domain.analysis.price_series import PriceSeries

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WIDEST_PERCENT = 99
_CLAIMED = {"night", "weekend"}  # of these guides promise something
_COLUMNS = (
    left("part"),
    left("hours", drop=2),
    left("verdict"),
    right("cheaper by"),
    right("95 % interval", drop=1),
    right("p", drop=3),
    right("from", drop=4),
)


class CalendarView(NamedTuple):
    """What there is to show."""

    title: str
    zone: str
    series: PriceSeries
    found: Calendar


# --- for a person -----------------------------------------------------------------------------------------------------


def print_calendar(shown: CalendarView) -> None:
    """The map, the table, and what it comes to."""
    from gpuwatch.cli.output import local
    from gpuwatch.cli.tables import table

    found = shown.found
    if not found.hours:
        polled = "nothing was on offer whenever somebody looked" if found.hours_polled else "nobody has looked for it"
        click.echo(f"{shown.title}: no data in {shown.series.source}; {polled}.")
        return
    click.echo(f"{shown.title} by hour of the week, {shown.zone}: percent against the median, {_usd(found)} a GPU-hour")
    for line in _map(found):
        click.echo(line)
    click.echo(f"{'':4}{_weeks(found)}; a number is the median of the lowest prices of that hour\n")
    table(_COLUMNS, [_row(one) for one in [*found.effects, found.any_hour]])
    click.echo()
    for line in _sentences(found):
        click.echo(line)
    click.echo(
        f"\n{shown.series.source}: {found.hours} hours with a price, of {found.hours_polled} with a look, "
        f"from {local(found.since, shown.zone)} to {local(found.until, shown.zone)}; "
        f"the price {_changed(found.changes)}."
    )
    click.echo(f"Method: {METHOD}; hours of the day: {HOURS_METHOD}.")


def _usd(found: Calendar) -> str:
    return "–" if found.median_microusd is None else f"{price_text(found.median_microusd / 1e6, least=4)} $"


def _map(found: Calendar) -> Iterator[str]:
    """Seven lines of 24 numbers; coloured for whoever looks at a terminal."""
    yield "    " + "".join(f"{hour:>3}" for hour in range(24))
    for day, name in enumerate(_DAYS):
        yield f"{name} " + "".join(_painted(cell, found) for cell in found.cells[day * 24 : day * 24 + 24])


def _changed(times: int) -> str:
    return {0: "never changed", 1: "changed once"}.get(times, f"changed {times} times")


def _weeks(found: Calendar) -> str:
    """How much a number of the map rests on."""
    least, most = min(cell.weeks for cell in found.cells), max(cell.weeks for cell in found.cells)
    return f"{least} to {most} weeks" if least < most else f"{most} weeks"


def percent_of(cell: HourOfWeekPrice, found: Calendar) -> float | None:
    """How far an hour's median is from the median of all hours."""
    if cell.median_microusd is None or not found.median_microusd:
        return None
    return 100 * (cell.median_microusd / found.median_microusd - 1)


def _painted(cell: HourOfWeekPrice, found: Calendar) -> str:
    from gpuwatch.cli.chart import is_colourful

    percent = percent_of(cell, found)
    if percent is None:
        return "  ·"
    number = max(-_WIDEST_PERCENT, min(_WIDEST_PERCENT, round(percent)))
    text = f"{number:>3}"
    if not is_colourful() or not number:
        return text
    return click.style(text, fg="green" if number < 0 else "red", bold=abs(number) >= 10)


def _row(effect: CalendarEffect) -> tuple[str, ...]:
    size = interval = "–"
    if effect.cheaper_percent is not None and effect.low_percent is not None and effect.high_percent is not None:
        size = _percent(effect.cheaper_percent)
        interval = f"{_percent(effect.low_percent)} to {_percent(effect.high_percent)}"
    p = "–" if effect.p_adjusted is None else "<0.001" if effect.p_adjusted < 0.001 else f"{effect.p_adjusted:.3f}"
    return (effect.name, effect.window, effect.verdict.value, size, interval, p, f"{effect.samples} {effect.sample}")


def _percent(amount: float) -> str:
    return f"{amount:.1f} %".replace("-0.0", "0.0").replace("-", "−")


def _sentences(found: Calendar) -> Iterator[str]:
    for effect in found.effects:
        yield f"{effect.name}: {effect_text(effect)}."
    yield f"hours of the day: {_said_of_hours(found)}."
    for effect in found.effects:
        inside, outside = effect.without_offers_share, effect.without_offers_elsewhere_share
        if inside or outside:
            shares = f"{inside or 0:.1%} of its hours, {outside or 0:.1%} of the others"
            yield f"{effect.name}: nothing was on offer in {shares}."
    if found.comparisons > 1:
        yield f"p is for {found.comparisons} comparisons together (Holm): under {ALPHA} is called a difference."


def effect_text(effect: CalendarEffect) -> str:
    """What an effect comes to, in words."""
    if effect.verdict is EffectVerdict.NOT_ENOUGH:
        return (
            f"not enough data: {effect.needed} {effect.sample} are needed with a price in three of four hours, "
            f"{effect.samples} are there"
        )
    size, low, high = (each or 0.0 for each in (effect.cheaper_percent, effect.low_percent, effect.high_percent))
    if effect.verdict is EffectVerdict.CHEAPER:
        return (
            f"cheaper by {_percent(size)} ({_percent(low)} to {_percent(high)}){_against_claim(effect.name, low, high)}"
        )
    if effect.verdict is EffectVerdict.DEARER:
        return f"dearer by {_percent(-size)} ({_percent(-high)} to {_percent(-low)})"
    would = f"; {_percent(effect.detectable_percent)} would likely be seen" if effect.detectable_percent else ""
    return f"no effect: {_percent(low)} to {_percent(high)} cheaper{_against_claim(effect.name, low, high)}{would}"


def _against_claim(name: str, low: float, high: float) -> str:
    """Guides promise 30–40 % at night and at weekends."""
    least, most = CLAIMED_PERCENT
    if name not in _CLAIMED:
        return ""
    if high < least:
        return f", less than the {least}–{most} % that guides promise"
    return f", as guides promise ({least}–{most} %)" if low >= least else f"; {least}–{most} % cannot be ruled out"


def _said_of_hours(found: Calendar) -> str:
    effect = found.any_hour
    if effect.verdict is not EffectVerdict.VARIES:
        return (
            effect_text(effect)
            if effect.verdict is EffectVerdict.NOT_ENOUGH
            else "no hour differs from the day around it"
        )
    words = [_stretch(hours) for hours in _runs(found.by_hour) if hours[0].verdict is not EffectVerdict.NO_EFFECT]
    return f"these differ from the day around them: {', '.join(words)}"


def _runs(by_hour: Sequence[HourEffect]) -> list[list[HourEffect]]:
    """Hours on end with one verdict; midnight parts none."""
    runs = [list(hours) for _, hours in groupby(by_hour, key=lambda one: one.verdict)]
    if len(runs) > 1 and runs[0][0].verdict is runs[-1][0].verdict:
        runs[0] = runs.pop() + runs[0]
    return runs


def _stretch(hours: Sequence[HourEffect]) -> str:
    mean = sum(one.cheaper_percent for one in hours) / len(hours)
    span = f"{hours[0].hour:02}:00-{(hours[-1].hour + 1) % 24:02}:00"
    return f"{span} {hours[0].verdict.value} by {_percent(abs(mean))}"


# --- for a program ----------------------------------------------------------------------------------------------------


def to_json(shown: CalendarView, gpu: str) -> dict[str, Any]:
    """Everything that is known."""
    from gpuwatch.domain.market.json_values import rfc3339

    found = shown.found
    return {
        "gpu": gpu,
        "zone": shown.zone,
        "source": shown.series.source,
        "since": rfc3339(found.since),
        "until": rfc3339(found.until),
        "samples": found.hours,
        "hours_looked": found.hours_polled,
        "price_changes": found.changes,
        "median_price_usd_gpu_hour": _whole_usd(found.median_microusd),
        "method": METHOD,
        "hours_method": HOURS_METHOD,
        "comparisons": found.comparisons,
        "correction": "Holm",
        "alpha": ALPHA,
        "claimed_percent": list(CLAIMED_PERCENT),
        "effects": [_effect_json(one) for one in found.effects],
        "any_hour": _effect_json(found.any_hour),
        "by_hour": [
            {
                "hour": one.hour,
                "cheaper_percent": one.cheaper_percent,
                "p_adjusted": one.p_adjusted,
                "verdict": one.verdict.value,
            }
            for one in found.by_hour
        ],
        "cells": [_cell_json(cell, found) for cell in found.cells],
    }


def _effect_json(effect: CalendarEffect) -> dict[str, Any]:
    import msgspec

    return msgspec.structs.asdict(effect) | {"verdict": effect.verdict.value, "text": effect_text(effect)}


def _cell_json(cell: HourOfWeekPrice, found: Calendar) -> dict[str, Any]:
    return {
        "weekday": _DAYS[cell.weekday],
        "hour": cell.hour,
        "median_price_usd_gpu_hour": _whole_usd(cell.median_microusd),
        "low_price_usd_gpu_hour": _whole_usd(cell.low_microusd),
        "high_price_usd_gpu_hour": _whole_usd(cell.high_microusd),
        "against_median_percent": percent_of(cell, found),
        "weeks": cell.weeks,
    }


def _whole_usd(microusd: float | None) -> float | None:
    return None if microusd is None else usd_number(round(microusd))


def print_csv(shown: CalendarView) -> None:
    """The hours of the week as CSV on standard output."""
    rows = [_cell_json(cell, shown.found) for cell in shown.found.cells]
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def picture(path: Path, shown: CalendarView) -> None:
    """The map as a picture."""
    from gpuwatch.cli.png import save_png

    save_png(path, lambda axes: _draw(axes, shown))


def _draw(axes: Any, shown: CalendarView) -> None:
    known = [percent_of(cell, shown.found) for cell in shown.found.cells]
    most = max((abs(number) for number in known if number is not None), default=0) or 1
    numbers = [float("nan") if number is None else number for number in known]
    rows: Sequence[Sequence[float]] = [numbers[day * 24 : day * 24 + 24] for day in range(7)]
    image = axes.imshow(rows, cmap="RdYlGn_r", vmin=-most, vmax=most, aspect="auto")
    axes.figure.colorbar(image, label=f"% against the median, {_usd(shown.found)} a GPU-hour")
    axes.set_xticks(range(24))
    axes.set_yticks(range(7), _DAYS)
    axes.set_xlabel(f"hour, {shown.zone}")
    axes.set_title(f"{shown.title}: lowest price by hour of the week")
