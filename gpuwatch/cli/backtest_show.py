"""A backtest for people: tables, charts, pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

import click

from gpuwatch.cli.tables import left, right
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.watches.watch import Action

if TYPE_CHECKING:
    from gpuwatch.app.backtest import Backtest
    from gpuwatch.domain.backtest.report import BacktestEvent, BacktestResult, WaitStatistics
    from gpuwatch.domain.watches.watch import Watch

_NOBODY = "nobody looked at the market for it in that time (no `gpuwatch run` then, or other GPUs)"
_T = TypeVar("_T")
_MOST_EVENTS = 20
_EVENTS = (
    left("when"),
    left("did", drop=3),
    left("why", drop=4),
    left("offer"),
    left("where", drop=2),
    right("$/GPU-h"),
    right("waited", drop=5),
    right("cheaper later", drop=6),
)
_STEPS = (
    right("max_price"),
    right("held", drop=3),
    right("fires", drop=2),  # or launches, where it rents
    right("first", drop=4),
    right("in time", drop=1),
    right("median wait"),
    right("mean paid"),
    right("at once", drop=1),
)


def show(found: Backtest, timezone: str) -> None:
    """Each watch: what it did, and what that was worth."""
    zone = ZoneInfo(timezone)
    for number, (watch, result) in enumerate(found.results):
        if number:
            click.echo()
        title = f"{watch.name}: {_rule(watch)}"
        if result is None:
            click.echo(f"{title}: {_NOBODY}")
            continue
        _events(result, title, zone)
        for line in _lines(watch, result, found, zone):
            click.echo(f"  {line}")
    _foot(found)


def _rule(watch: Watch) -> str:
    gpus, most = ", ".join(watch.gpu), f"{watch.max_price_usd_gpu_hour:f}"
    if watch.max_job_cost_usd is not None:
        return f"{gpus}, the job for at most ${watch.max_job_cost_usd:f}, {watch.action.value}"
    return f"{gpus} at or under {most} $/GPU-h{' (auto)' if watch.auto else ''}, {watch.action.value}"


def _events(result: BacktestResult, title: str, zone: ZoneInfo) -> None:
    from gpuwatch.cli.tables import table

    if not result.events:
        click.echo(f"{title}: it never fired")
        return
    events = _worth_a_line(result)
    left_out = 1 if len({event.did for event in events}) == 1 else None  # the title says it
    rows = [_event(event, zone) for event in events[:_MOST_EVENTS]]
    table(_without(_EVENTS, left_out), [_without(row, left_out) for row in rows], title=title)
    if len(events) > _MOST_EVENTS:
        click.echo(f"  … and {len(events) - _MOST_EVENTS} more (--json and --csv show all)")


def _without(cells: Sequence[_T], at: int | None) -> list[_T]:
    return [cell for number, cell in enumerate(cells) if number != at]


def _worth_a_line(result: BacktestResult) -> list[BacktestEvent]:
    """Without reminders, and without offers of which the watch had enough already."""
    return [event for event in result.events if not event.is_reminder and not event.is_beyond_limits]


def _event(event: BacktestEvent, zone: ZoneInfo) -> tuple[str, ...]:
    offer, later = event.offer, event.cheaper_later
    return (
        _when(event.at, zone),
        event.did,
        event.reason.replace("_", " "),
        f"{offer.gpu_count}× {offer.gpu}{' spot' if offer.spot else ''}",
        ", ".join(part for part in (offer.provider, offer.region or offer.country) if part),
        f"{event.usd_gpu_hour:.4f}",
        _span(event.waited),
        "–" if later is None else f"{later.usd_gpu_hour:.4f} +{_span(later.at - event.at)}",
    )


def _lines(watch: Watch, result: BacktestResult, found: Backtest, zone: ZoneInfo) -> Iterator[str]:
    blind = f"; {result.blind} could not tell" if result.blind else ""
    yield (
        f"{result.looks} looks from {_when(result.since, zone)} to {_when(result.until, zone)}{blind}; "
        f"at {result.held:.0%} of them it could have rented"
    )
    yield _counts(result)
    if result.paid_usd_gpu_hour is not None:
        yield _worth(watch, result)
    elif result.at_once_usd_gpu_hour is not None:
        yield (
            f"at once it would have cost {result.at_once_usd_gpu_hour:.4f} $/GPU-h; "
            f"the cheapest that fitted cost {result.median_usd_gpu_hour:.4f} half of the time"
        )
    else:
        yield "nothing that fits was ever on offer, at any price"
    if result.budget_refusals:
        told = ", ".join(f"{reason} at {looks} looks" for reason, looks in result.budget_refusals.items())
        yield f"no money left for it: {told}"
    yield from _waiting(result, found.deadline)
    if clauses := found.ignored.get(watch.name):
        yield f"the history does not say: {', '.join(clauses)}; these clauses were left out (--strict refuses)"
    if watch.require:
        yield f"taken for ticked: {', '.join(watch.require)}"


def _counts(result: BacktestResult) -> str:
    events = _worth_a_line(result)
    reminders = sum(event.is_reminder for event in result.events)
    told = f"it fired {_times(result.fires)}" + (f", {reminders} of them reminders" if reminders else "")
    if result.launches:
        launches = "1 launch" if result.launches == 1 else f"{result.launches} launches"
        told += f"; {launches}, {dollars(result.cost_usd)} in all"
    missed = sum(event.cheaper_later is not None for event in events)
    return f"{told}; something cheaper came after {missed} of {len(events)}" if events else told


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _worth(watch: Watch, result: BacktestResult) -> str:
    at_once, median = result.saved_against_at_once, result.saved_against_median
    paid = "paid" if watch.action is Action.LAUNCH else "the first time"
    parts = []
    if at_once is not None:
        parts.append(f"{_than(at_once)} at once ({result.at_once_usd_gpu_hour:.4f})")
    if median is not None:
        parts.append(f"{_than(median)} the median ({result.median_usd_gpu_hour:.4f})")
    return f"{paid} {result.paid_usd_gpu_hour:.4f} $/GPU-h: {', '.join(parts)}"


def _waiting(result: BacktestResult, deadline: timedelta) -> Iterator[str]:
    waiting = result.waiting
    if waiting.within_deadline is None:
        yield f"the data is shorter than the deadline ({_span(deadline)}): what waiting is worth cannot be told"
        return
    median = "over half were still waiting" if waiting.median_s is None else f"median wait {_span(waiting.median_s)}"
    yield (
        f"begun at any of {waiting.judged} looks, one an hour: {waiting.within_deadline:.0%} came to an offer within "
        f"{_span(deadline)}, {median}"
    )
    if waiting.saved is None:
        return
    yield (
        f"mean price {waiting.paid_usd_gpu_hour:.4f} (after {_span(deadline)} it takes what there is): "
        f"{_than(waiting.saved)} at once ({waiting.at_once_usd_gpu_hour:.4f})"
    )
    if waiting.interval is None:
        yield "too few days to say how certain that is"
    elif waiting.saved:
        low, high = waiting.interval
        chance = "" if waiting.is_shown else "; that may be chance"
        yield f"95 % interval of that saving, by a block bootstrap over days: {low:.1%} to {high:.1%}{chance}"


def show_sweep(found: Backtest) -> None:
    """The trade-off: a lower price against a longer wait."""
    from gpuwatch.cli.chart import line_chart
    from gpuwatch.cli.tables import table

    known = [(watch, result) for watch, result in found.results if result is not None]
    watch = found.results[0][0]
    title = f"{watch.name}: {', '.join(watch.gpu)}, {watch.action.value}"
    if not known:
        click.echo(f"{title}: {_NOBODY}")
        return
    rents = watch.action is Action.LAUNCH
    columns = [one._replace(heading="launches") if rents and one.heading == "fires" else one for one in _STEPS]
    table(columns, [_step(watch, result) for watch, result in known], title=title)
    xs, ys = _curve(known)
    if len({y for y in ys if y is not None}) > 1:
        click.echo()
        click.echo(line_chart(xs, {"median wait": ys}, "median wait in hours, by max_price"))
    first = known[0][1]
    span = _span(found.deadline)
    click.echo(f"  {first.looks} looks; held: the share of them at which it could have rented")
    click.echo(f"  begun at any of {first.waiting.judged} looks, one an hour: in time: came to an offer within {span};")
    click.echo(f"  mean paid: after {span} it takes what there is; at once: that against buying at once")
    if any(not result.waiting.is_shown for _, result in known):
        click.echo("  (…): it may be chance, or there are too few days to tell; 95 %, block bootstrap over days")
    if clauses := found.ignored.get(watch.name):
        click.echo(f"  the history does not say: {', '.join(clauses)}; these clauses were left out (--strict refuses)")
    _foot(found)


def _step(watch: Watch, result: BacktestResult) -> tuple[str, ...]:
    first, waiting = result.first, result.waiting
    return (
        f"{watch.max_price_usd_gpu_hour:f}",
        f"{result.held:.0%}",
        str(result.launches if watch.action is Action.LAUNCH else result.fires),
        "–" if first is None else _span(first.waited),
        "–" if waiting.within_deadline is None else f"{waiting.within_deadline:.0%}",
        "–" if waiting.median_s is None else _span(waiting.median_s),
        "–" if waiting.paid_usd_gpu_hour is None else f"{waiting.paid_usd_gpu_hour:.4f}",
        "–" if waiting.saved is None else _against(waiting),
    )


def picture(path: Path, found: Backtest, is_sweep: bool) -> None:
    """The trade-off, or the cheapest that fitted with what was taken."""
    from gpuwatch.cli.png import save_png

    known = [(watch, result) for watch, result in found.results if result is not None]
    save_png(path, lambda axes: _draw_sweep(axes, known) if is_sweep else _draw(axes, known))


def _draw(axes: Any, known: Sequence[tuple[Watch, BacktestResult]]) -> None:
    for watch, result in known:
        times, prices = result.track()
        (line,) = axes.step(times, prices, where="post", label=f"{watch.name}: cheapest that fits")
        axes.axhline(float(watch.max_price_usd_gpu_hour), color=line.get_color(), linestyle=":", linewidth=1)
        taken = [event for event in result.events if event.launched] or result.events
        if taken:
            at, paid = [event.at for event in taken], [event.usd_gpu_hour for event in taken]
            axes.plot(at, paid, "o", color=line.get_color())
    axes.set_ylabel("USD per GPU-hour, commission included")
    axes.legend()
    axes.figure.autofmt_xdate()


def _draw_sweep(axes: Any, known: Sequence[tuple[Watch, BacktestResult]]) -> None:
    xs, ys = _curve(known)
    axes.plot(xs, [float("nan") if y is None else y for y in ys], "o-", color="tab:blue")
    axes.set_xlabel("max_price, USD per GPU-hour")
    axes.set_ylabel("median wait in hours", color="tab:blue")
    shares = [result.waiting.within_deadline for _, result in known]
    if any(share is not None for share in shares):
        right = axes.twinx()
        right.plot(xs, [float("nan") if share is None else 100 * share for share in shares], "s--", color="tab:orange")
        right.set_ylabel("came to an offer in time, %", color="tab:orange")
        right.set_ylim(-3, 103)
    axes.set_title(f"{known[0][0].name}: price against waiting")


def _curve(known: Sequence[tuple[Watch, BacktestResult]]) -> tuple[list[float], list[float | None]]:
    xs = [float(watch.max_price_usd_gpu_hour) for watch, _ in known]
    waits = [result.waiting.median_s for _, result in known]
    return xs, [None if wait is None else wait / 3600 for wait in waits]


def _foot(found: Backtest) -> None:
    click.echo(f"\n{found.source}: {found.intervals} prices, {found.looks} looks.")
    click.echo("Method: replay of the recorded looks through the daemon's decisions; an offer stands until a look")
    click.echo("misses it; launches run at once and to their end.")


def _against(waiting: WaitStatistics) -> str:
    share = waiting.saved or 0.0
    if share == 0:
        return "0.0%"
    return f"{-share:+.1%}" if waiting.is_shown else f"({-share:+.1%})"


def _than(share: float) -> str:
    if round(share, 3) == 0:
        return "the same as"
    return f"{abs(share):.1%} {'less' if share > 0 else 'more'} than"


def _when(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M")


def _span(wait: timedelta | float) -> str:
    from gpuwatch.domain.watches.durations import format_duration

    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    step = 3600 if seconds >= 2 * 86_400 else 60 if seconds >= 60 else 1
    return format_duration(round(seconds / step) * step)
