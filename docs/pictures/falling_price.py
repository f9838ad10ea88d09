"""Draws docs/pictures/falling-price.svg: a recorded price falls under a limit, and the alert that follows.

The prices are real: the lowest on-demand price of an H100 SXM in the public series of docs/data.md. The chart is that
of alerts and shared links. The line draws itself once, then the alert appears; without animation the picture shows the
end.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gpuwatch.app.history.svg_axes import COMPACT, LEFT, Plane
from gpuwatch.app.history.svg_charts import SvgLine, SvgMarks, picture_svg, step_chart
from gpuwatch.app.history.svg_style import label
from gpuwatch.domain.market.money import per_gpu_hour, per_hour

HERE = Path(__file__).parent
PICTURE = HERE / "falling-price.svg"
SERIES = HERE.parents[1] / "tests/recorded/price-history/primeintellect-best-2025-10-19_11-03.csv.gz"
GPU = "H100_80GB_SXM5"
BEGIN, END = datetime(2025, 10, 26, 12, tzinfo=UTC), datetime(2025, 10, 29, 6, tzinfo=UTC)
LIMIT = 1.85
_TITLE = f"An H100 SXM falls under a limit of {per_gpu_hour(LIMIT)}, and an alert follows"
_ANIMATION = """
.alert{fill:var(--win);stroke:var(--good)}
@media (prefers-reduced-motion:no-preference){
.drawn{animation:draw 3s linear both}.dot,.found{animation:appear .5s 3s both}}
@keyframes draw{from{clip-path:inset(0 100% 0 0)}to{clip-path:inset(0 0 0 0)}}
@keyframes appear{from{opacity:0}to{opacity:1}}
"""


class SeenPrice(NamedTuple):
    """The lowest price of one poll."""

    at: datetime
    usd_gpu_hour: float
    gpu_count: int


def seen_prices() -> list[SeenPrice]:
    """Return what each poll showed, oldest first."""
    lowest: dict[datetime, SeenPrice] = {}
    with gzip.open(SERIES, "rt", encoding="utf-8") as opened:
        for row in csv.DictReader(opened):
            at = datetime.fromisoformat(row["observed_at"])
            if row["gpu_name_raw"] == GPU and row["spot"] == "false" and BEGIN <= at < END:
                count = int(row["gpu_count"])
                seen = SeenPrice(at, float(row["price_usd_hour"]) / count, count)
                lowest[at] = min(lowest.get(at, seen), seen, key=lambda one: one.usd_gpu_hour)
    return [lowest[at] for at in sorted(lowest)]


def as_svg() -> str:
    """Draw the whole picture."""
    prices = seen_prices()
    first = next(number for number, one in enumerate(prices) if one.usd_gpu_hour <= LIMIT)
    found, gone = prices[first], prices[first + 1]
    times = [one.at for one in (*prices, prices[-1]._replace(at=END))]
    usd = [one.usd_gpu_hour for one in (*prices, prices[-1])]
    marks = SvgMarks("the alert", [(found.at, found.usd_gpu_hour)])
    chart = step_chart(
        _TITLE, times, [SvgLine("lowest price per GPU-hour", usd)], marks=marks, limit=LIMIT, size=COMPACT
    )
    assert chart is not None
    line = '<path class="p-line" '
    assert chart.body.count(line) == 1
    body = chart.body.replace(line, '<path class="p-line drawn" ') + "".join(_alert(found, gone, times, usd))
    picture = picture_svg(_TITLE, [chart._replace(body=body)])
    return picture.replace("</style>", f"{_ANIMATION}</style>", 1) + "\n"


def _alert(found: SeenPrice, gone: SeenPrice, times: Sequence[datetime], usd: Sequence[float]) -> Iterator[str]:
    """What the alert said, beside its mark, and how long the price lasted."""
    plane = Plane([at.timestamp() for at in times], [*usd, LIMIT], COMPACT)
    x, y = plane.x(found.at.timestamp()), plane.y(found.usd_gpu_hour)
    left = LEFT + 14
    minutes = round((gone.at - found.at).total_seconds() / 60)
    yield '<g class="found">'
    yield f'<rect class="alert" x="{left:.1f}" y="{y - 28:.1f}" width="{x - left - 14:.1f}" height="42" rx="8"/>'
    price = f"{found.gpu_count}× H100 SXM at {per_gpu_hour(round(found.usd_gpu_hour, 2))}"
    total = per_hour(round(found.usd_gpu_hour * found.gpu_count, 2))
    yield label(left + 12, y - 11, f"{price}, {total}", kind="strong")
    yield label(left + 12, y + 6, f"{found.at:%d %b %H:%M} UTC, gone {minutes} minutes later")
    yield "</g>"


def draw() -> None:
    """Write the picture."""
    PICTURE.write_text(as_svg(), encoding="utf-8")
