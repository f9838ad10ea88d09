"""`--png FILE`: pictures drawn by matplotlib (the extra `analysis`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.atomic_file import atomic_file
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.backtest.replay_result import BacktestResult
    from gpuwatch.domain.watches.watch import Watch

Command = Callable[..., Any]
_SIZE_INCHES = (10, 5)
_DPI = 120


def png_option(command: Command) -> Command:
    """`--png FILE`; arrives as `png: Path | None`."""
    return click.option(
        "--png", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write a picture to this file."
    )(command)


def save_png(path: Path, draw: Callable[[Any], None]) -> None:
    """Draw a picture and write it atomically.

    Args:
        draw: fills a `matplotlib.axes.Axes`.

    Raises:
        UsageError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        from gpuwatch.installation import install_hint

        raise UsageError(f"--png needs matplotlib: {install_hint('analysis')}") from fault
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    draw(figure.subplots())
    try:
        with atomic_file(path) as part:
            figure.savefig(part, format="png", metadata={"Software": None})  # the same data gives the same bytes
    except OSError as fault:
        raise UsageError(f"cannot write {path}: {fault.strerror or fault}") from fault


def draw_backtest(axes: Any, results: Sequence[tuple[Watch, BacktestResult]]) -> None:
    """The cheapest matching offer of each watch, and its events."""
    for watch, result in results:
        times, prices = result.track()
        (line,) = axes.step(times, prices, where="post", label=f"{watch.name}: cheapest matching offer")
        axes.axhline(float(watch.max_price_usd_gpu_hour), color=line.get_color(), linestyle=":", linewidth=1)
        taken = [event for event in result.events if event.launched] or result.events
        if taken:
            at, paid = [event.at for event in taken], [event.usd_gpu_hour for event in taken]
            axes.plot(at, paid, "o", color=line.get_color())
    axes.set_ylabel("USD per GPU-hour, commission included")
    axes.legend()
    axes.figure.autofmt_xdate()


def draw_sweep(axes: Any, results: Sequence[tuple[Watch, BacktestResult]]) -> None:
    """Price paid and share of starts in time against the median wait; one point per threshold."""
    points = [
        (watch, result.waiting, result.waiting.median_s / 3600, result.waiting.paid_usd_gpu_hour)
        for watch, result in results
        if result.waiting.median_s is not None and result.waiting.paid_usd_gpu_hour is not None
    ]
    waits = [wait_h for _, _, wait_h, _ in points]
    axes.plot(waits, [paid for _, _, _, paid in points], "o-", color="tab:blue")
    for watch, _, wait_h, paid in points:
        axes.annotate(f"{watch.max_price_usd_gpu_hour:f}", (wait_h, paid), (4, 4), textcoords="offset points")
    axes.set_xlabel("median wait in hours")
    axes.set_ylabel("mean price paid, USD per GPU-hour", color="tab:blue")
    if any(waiting.within_deadline is not None for _, waiting, _, _ in points):
        right = axes.twinx()
        shares = [
            float("nan") if point.within_deadline is None else 100 * point.within_deadline for _, point, _, _ in points
        ]
        right.plot(waits, shares, "s--", color="tab:orange")
        right.set_ylabel("found an offer in time, %", color="tab:orange")
        right.set_ylim(-3, 103)
    axes.set_title(f"{results[0][0].name}: price paid against wait, by max_price")


def wait_curve(results: Sequence[tuple[Watch, BacktestResult]]) -> tuple[list[float], list[float | None]]:
    """Thresholds, and the median wait in hours at each."""
    xs = [float(watch.max_price_usd_gpu_hour) for watch, _ in results]
    waits = [result.waiting.median_s for _, result in results]
    return xs, [None if wait is None else wait / 3600 for wait in waits]
