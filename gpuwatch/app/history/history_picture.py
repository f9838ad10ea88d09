"""A chart of the price of a GPU over time, drawn by matplotlib (the extra `analysis`)."""

from __future__ import annotations

from datetime import timedelta, tzinfo
from io import BytesIO
from typing import Any

from gpuwatch.app.history.price_history import PriceHistoryResult
from gpuwatch.domain.history.price_series import unobserved_gaps
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint

PICTURE_INCHES = (10, 5)
PICTURE_DPI = 120


def price_history_png(history: PriceHistoryResult, title: str, zone: tzinfo) -> bytes:
    """The chart as PNG. Raises UsageError: matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise UsageError(f"a picture requires matplotlib: {install_hint('analysis')}") from fault
    figure = Figure(figsize=PICTURE_INCHES, dpi=PICTURE_DPI, layout="constrained")
    draw_price_history(figure.subplots(), history, title, zone)
    written = BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})  # equal data result in equal bytes
    return written.getvalue()


def draw_price_history(axes: Any, history: PriceHistoryResult, title: str, zone: tzinfo) -> None:
    """Draw the chart on a `matplotlib.axes.Axes`; grey where the market was not polled."""
    from matplotlib import dates  # noqa: PLC0415 - an extra

    ticks: Any = dates  # only partly typed
    points = [*history.track.points, history.track.points[-1]]  # the last step extends to its end
    times = [point.starts_at for point in points]
    times[-1] = history.ends_at or times[-1]
    nan = float("nan")
    low, q1, median, q3 = (
        [nan if (price := getattr(point, f"{name}_with_commission_microusd")) is None else price / 1e6
         for point in points]
        for name in ("min", "q1", "median", "q3")
    )  # fmt: skip
    axes.fill_between(times, q1, q3, step="post", alpha=0.2, label="25 – 75 %")
    axes.step(times, median, where="post", label="median")
    axes.step(times, low, where="post", label="lowest")
    for gap in unobserved_gaps(history.track.series):
        axes.axvspan(gap.starts_at, gap.starts_at + timedelta(hours=gap.hours), color="0.9", zorder=0)
    axes.set_title(title)
    locator = ticks.AutoDateLocator(tz=zone)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ticks.ConciseDateFormatter(locator, tz=zone))
    axes.set_xlabel(str(zone))
    axes.legend()
