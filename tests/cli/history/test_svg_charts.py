"""Charts as SVG: round times of the reader's clock, what was not polled, labels beside each other, light and dark."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.app.history.svg_axes import dollars_tick, figure_ticks, time_ticks
from gpuwatch.app.history.svg_charts import (
    SvgChart,
    SvgLine,
    SvgMarks,
    picture_svg,
    point_chart,
    range_chart,
    step_chart,
    week_map,
)
from gpuwatch.app.history.svg_style import DARK, LIGHT, Box, box_of
from tests.cli.conftest import Shell

ZURICH = ZoneInfo("Europe/Zurich")
HISTORY = ("history", "H100", "--data")
_LABEL = re.compile(r'<text (?:class="[\w -]*" )?x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]*)<')


def boxes(chart: SvgChart | None) -> list[tuple[str, Box]]:
    """Every label with its place."""
    assert chart is not None
    return [(text, box_of(float(x), float(y), text, anchor)) for x, y, anchor, text in _LABEL.findall(chart.body)]


def overlapping(chart: SvgChart | None) -> list[tuple[str, str]]:
    placed = boxes(chart)
    return [(a, b) for number, (a, box) in enumerate(placed) for b, other in placed[:number] if box.meets([other])]


def a_day(hours: int, zone: ZoneInfo = ZURICH, start: datetime = datetime(2026, 11, 28, 21, tzinfo=UTC)) -> SvgChart:
    times = [(start + timedelta(hours=hour)).astimezone(zone) for hour in range(hours)]
    prices = [1.5 + 0.1 * (hour % 7) for hour in range(hours)]
    line = SvgLine("lowest", prices, ([price - 0.1 for price in prices], [price + 0.4 for price in prices]))
    marks = SvgMarks("rented", [(times[1], 1.6)])
    unknown = [hour in (3, 4) for hour in range(hours)]
    chart = step_chart("t", times, [line, SvgLine("median", prices)], unknown, marks=marks, limit=1.75)
    assert chart is not None
    return chart


@pytest.mark.parametrize("hours", [2, 5, 24, 72, 24 * 7, 24 * 30, 24 * 400, 24 * 3000])
def test_labels_never_cover_each_other(hours: int) -> None:
    assert overlapping(a_day(hours)) == []
    assert len(boxes(a_day(hours))) > 6


def test_times_are_round_on_the_clock_of_the_reader() -> None:
    since, until = datetime(2026, 11, 28, 21, tzinfo=UTC), datetime(2026, 11, 30, 3, tzinfo=UTC)
    ticks = time_ticks(since.timestamp(), until.timestamp(), ZURICH)
    assert [tick.text for tick in ticks] == ["29 Nov", "06:00", "12:00", "18:00", "30 Nov"]
    assert datetime.fromtimestamp(ticks[0].at, ZURICH).hour == 0


def test_a_day_of_25_hours_keeps_its_midnights() -> None:
    since, until = datetime(2026, 10, 24, 22, tzinfo=UTC), datetime(2026, 10, 26, 23, tzinfo=UTC)
    ticks = time_ticks(since.timestamp(), until.timestamp(), ZURICH)
    midnights = [tick for tick in ticks if tick.text in {"25 Oct", "26 Oct", "27 Oct"}]
    assert [b.at - a.at for a, b in itertools.pairwise(midnights)] == [25 * 3600, 24 * 3600]


@given(st.integers(1, 400_000), st.integers(0, 2_000_000_000))
def test_any_span_has_a_few_ticks_within_it(minutes: int, since_s: int) -> None:
    ticks = time_ticks(since_s, since_s + 60 * minutes, ZURICH)
    assert 1 <= len(ticks) <= 7
    assert all(since_s <= tick.at <= since_s + 60 * minutes for tick in ticks)
    dated = [tick.text for tick in ticks if not tick.text.endswith(":00")]
    assert len(set(dated)) == len(dated)


@given(st.floats(0.001, 1000), st.floats(0.001, 1000))
def test_figures_are_distinct_and_exact(low: float, width: float) -> None:
    ticks = figure_ticks(low, low + width, dollars_tick)
    assert 2 <= len(ticks) <= 8
    assert len({tick.text for tick in ticks}) == len(ticks)
    for tick in ticks:
        assert float(tick.text.lstrip("$").replace(",", "")) == pytest.approx(tick.at, abs=width / 1000)


def test_what_was_not_polled_is_hatched_and_said() -> None:
    chart = a_day(24)
    [gaps] = re.findall('<path class="p-gap" d="(.*?)"', chart.body)
    assert gaps.count("M") == 2  # hours
    assert chart.body.count('class="p-gap"') == 2  # and the key
    assert "not polled" in chart.body
    assert "rented" in chart.body
    assert "limit $1.75" in chart.body


def test_points_that_lie_close_leave_labels_out_but_still_say_them() -> None:
    points = [(1.0 + number / 100, 2.0, f"{number}: a long label of a threshold") for number in range(20)]
    chart = point_chart("t", points, "hours", "dollars")
    assert overlapping(chart) == []
    assert chart is not None
    assert all(f"<title>{text}</title>" in chart.body for _, _, text in points)


def test_long_names_and_high_figures_stay_inside() -> None:
    rows = [("an offer with a very long name at a very long place", 1.0, 2.0), ("b", 99_999.0, 123_456.78)]
    chart = range_chart("t", rows, limit=123_456.0)
    assert overlapping(chart) == []
    assert all(box.left >= 0 and box.right <= 900 for _, box in boxes(chart))


def test_the_steps_of_a_week_are_the_same_for_every_gpu() -> None:
    percents: list[float | None] = [None, -1.9, -2.0, -4.0, -7.0, 2.0, 4.0, 7.0, *[0.0] * 160]
    body = week_map("t", percents, ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]).body
    kinds = re.findall(r'<rect class="([\w-]+)" x="\d+" y="6"', body)[:8]
    assert kinds == ["p-gap", "z", "ca", "cb", "cc", "da", "db", "dc"]


def test_one_picture_has_both_grounds() -> None:
    drawn = picture_svg("title", [a_day(24)])
    assert all(f"--{name}:{colour}" in drawn for palette in (LIGHT, DARK) for name, colour in palette.items())
    assert set(LIGHT) == set(DARK)
    assert set(re.findall(r"var\(--([\w-]+)\)", drawn)) <= set(LIGHT)


def test_the_file_name_and_dark_choose_the_picture(shell: Shell) -> None:
    pytest.importorskip("resvg_py")
    rows = [
        f"2026-03-02T{hour:02}:00:00Z,vastai,1/ondemand,US,H100 SXM,1,80,false,{2 + hour / 10}" for hour in range(9)
    ]
    head = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
    (shell.folder / "p.csv").write_text("\n".join([head, *rows]) + "\n")
    for name, *more in (("a.png",), ("b.png", "--dark"), ("c.svg",)):
        assert shell(*HISTORY, "p.csv", "--since", "2026-03-01", "--png", name, *more).code == 0
    light, dark, svg = ((shell.folder / name).read_bytes() for name in ("a.png", "b.png", "c.svg"))
    assert light[:4] == dark[:4] == b"\x89PNG"
    assert light != dark
    assert svg.startswith(b"<svg ")
