"""Small charts: gaps, limits far away, one price, equal prices, no data; and that they are attributes and text only."""

from __future__ import annotations

import re
import statistics
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.app.history.svg_charts import picture_svg
from gpuwatch.app.history.svg_plots import BarDay, SurvivalStep, stacked_bars, stacked_chart, survival_chart
from gpuwatch.app.history.svg_small import NOTHING_ON_SALE, range_bar, rank_strip, spark_chart, sparkline
from gpuwatch.domain.market.price_rank import PriceRange, Standing, price_range_of, standing_of

PRICES = st.one_of(st.none(), st.just(NOTHING_ON_SALE), st.floats(0.001, 1000))


def parts_of(svg: str, name: str) -> list[ET.Element]:
    """The elements of a class."""
    return [one for one in ET.fromstring(svg).iter() if name in one.get("class", "").split()]


def line_of(svg: str) -> str:
    return "".join(one.get("d", "") for one in parts_of(svg, "p-line"))


def test_what_was_not_polled_is_hatched_and_has_no_line() -> None:
    svg = sparkline([2.0, None, None, 1.0], None, "")
    (gap,) = parts_of(svg, "p-gap")
    assert (gap.get("x"), gap.get("width"), gap.get("height")) == ("60", "120", "40")
    assert re.fullmatch(r"M0 [\d.]+H60M180 [\d.]+H240", line_of(svg))


def test_where_nothing_was_on_sale_there_is_neither_line_nor_hatch() -> None:
    svg = sparkline([2.0, NOTHING_ON_SALE, 1.0], None, "")
    assert not parts_of(svg, "p-gap")
    assert line_of(svg).count("M") == 2
    assert parts_of(sparkline([NOTHING_ON_SALE, 1.0], None, ""), "p-dot")
    assert not parts_of(sparkline([1.0, NOTHING_ON_SALE], None, ""), "p-dot"), "there is no newest price"


def test_a_price_holds_until_the_next_and_only_changes_are_written() -> None:
    assert re.fullmatch(r"M0 [\d.]+H160V[\d.]+H240", line_of(sparkline([1.0, 1.0, 2.0], None, "")))


def test_the_time_at_or_under_the_limit_is_filled() -> None:
    filled = parts_of(sparkline([2.0, 1.0, 1.5, None, 2.0, 1.0], 1.5, ""), "p-win")
    assert [re.match(r"M([\d.]+) ", one.get("d", "")).group(1) for one in filled] == ["40", "200"]  # type: ignore[union-attr]
    assert [re.search(r"H([\d.]+)V[\d.]+Z", one.get("d", "")).group(1) for one in filled] == ["120", "240"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("limit", "level", "filled"), [(0.01, "39", 0), (50.0, "1", 1)])
def test_a_limit_far_outside_lies_at_the_edge_and_leaves_the_line_its_height(
    limit: float, level: str, filled: int
) -> None:
    svg = sparkline([1.0, 1.2], limit, "")
    (line,) = parts_of(svg, "p-lim")
    assert line.get("y1") == line.get("y2") == level
    assert len(parts_of(svg, "p-win")) == filled
    heights = [float(y) for y in re.findall(r"[MV](?:\d+ )?([\d.]+)", line_of(svg))]
    assert max(heights) - min(heights) > 20


def test_one_price_equal_prices_and_no_price_are_drawn() -> None:
    assert re.fullmatch(r"M0 20H240", line_of(sparkline([1.5], None, "")))
    assert re.fullmatch(r"M0 20H240", line_of(sparkline([1.5] * 168, 1.5, "")))
    for values in ([], [None, None], [NOTHING_ON_SALE] * 3):
        svg = sparkline(values, 1.5, "")
        assert not line_of(svg)
        assert parts_of(svg, "p-lim")[0].get("y1") == "20"


@given(st.lists(PRICES, max_size=40), st.one_of(st.none(), st.floats(0.001, 1000)))
def test_every_sparkline_lies_within_its_box(values: list[float | None], limit: float | None) -> None:
    svg = sparkline(values, limit, "")
    for one in ET.fromstring(svg).iter():
        numbers = re.findall(r"-?[\d.]+", one.get("d", "").replace("h.01", ""))
        assert all(-0.05 <= float(part) <= 240.05 for part in numbers)
    assert "nan" not in svg
    assert "inf" not in svg


def test_texts_are_escaped_and_nothing_needs_a_style_or_a_script() -> None:
    hostile = '"><script>alert(1)</script>'
    drawn = [
        sparkline([1.0], None, hostile),
        rank_strip(1, 2, 3, 4, 5, 2, label=hostile),
        stacked_bars([BarDay(hostile, [1.0], hostile), BarDay(hostile, [1.0])], [hostile], 2.0, hostile, hostile),
        survival_chart([SurvivalStep(1, 0.5, 0.4, 0.6)], 2, 1, hostile, hostile),
    ]
    for svg in drawn:
        assert "<script" not in svg
        assert "style" not in svg
        ET.fromstring(svg)


def test_a_rank_strip_shows_range_middle_half_limit_and_now() -> None:
    svg = rank_strip(1.0, 1.5, 1.75, 2.0, 3.0, 1.2, 2.5, "rank")
    (box,), (median,), (limit,), (now,) = (parts_of(svg, name) for name in ("s-box", "s-med", "s-lim", "s-now"))
    assert (box.get("x"), box.get("width")) == ("25.5%", "24.5%")
    assert (median.get("x1"), limit.get("x1"), now.get("cx")) == ("37.8%", "74.5%", "10.8%")
    assert now.get("class") == "s-now good"
    assert not parts_of(rank_strip(1.0, 1.5, 1.75, 2.0, 3.0, 1.2, 3.5), "s-lim"), "a limit outside would be a lie"
    assert not parts_of(rank_strip(1.0, 1.5, 1.75, 2.0, 3.0, None), "s-now")
    assert parts_of(rank_strip(1.0, 1.5, 1.75, 2.0, 3.0, 0.5), "s-now")[0].get("cx") == "1%"
    assert parts_of(rank_strip(1.0, 1.0, 1.0, 1.0, 1.0, 1.0), "s-now")[0].get("class") == "s-now"


def test_a_range_bar_stays_on_its_axis() -> None:
    (bar,) = parts_of(range_bar(30, 90, 60, 45, "e"), "s-e")
    assert (bar.get("x"), bar.get("width")) == ("50%", "50%")
    assert parts_of(range_bar(30, 90, 60, 45), "a-lim")[0].get("x1") == "75%"
    assert not parts_of(range_bar(30, 90, 60, 70), "a-lim")
    assert parts_of(range_bar(0, 0, 0), "s-a")[0].get("width") == "0.5%"


@given(st.lists(st.integers(1, 100), min_size=1, max_size=60), st.integers(1, 110))
def test_where_a_price_stands(prices: list[int], now: int) -> None:
    history = price_range_of(prices)
    ordered = sorted(prices)
    assert (history.low, history.high) == (ordered[0], ordered[-1])
    assert history.low <= history.q1 <= history.median <= history.q3 <= history.high
    if len(prices) > 1:
        quartiles = statistics.quantiles(prices, method="inclusive")
        assert history[1:4] == pytest.approx(quartiles)
    standing = standing_of(history, now)
    assert (standing is Standing.CHEAP) == (now <= history.q1 and now < history.median)
    assert (standing is Standing.DEAR) == (now >= history.q3 and now > history.median)


def test_a_price_that_never_changes_is_usual() -> None:
    assert standing_of(PriceRange(2, 2, 2, 2, 2), 2) is Standing.USUAL


def test_bars_are_stacked_from_zero_and_forecasts_hatched() -> None:
    days = [BarDay("1", [10.0, 5.0]), BarDay("2", [0.0, 0.0]), BarDay("3", [], "about $6", 6.0)]
    svg = stacked_bars(days, ["night", "job"], 20.0, "daily budget $20", "Costs")
    first, second = parts_of(svg, "s-a")[0], parts_of(svg, "s-b")[0]
    floor = float(first.get("y", "")) + float(first.get("height", ""))
    assert float(second.get("y", "")) + float(second.get("height", "")) == pytest.approx(
        float(first.get("y", "")) - 1, abs=0.15
    )
    assert float(first.get("height", "")) == pytest.approx(2 * (float(second.get("height", "")) + 1), abs=0.2)
    assert floor == pytest.approx(216)
    assert len(parts_of(svg, "s-next")) == 1
    assert re.findall("<title>(.*?)</title>", svg) == ["1: night $10.00, job $5.00", "2: $0.00", "about $6"]
    assert float(parts_of(svg, "a-lim")[0].get("y1", "")) < float(second.get("y", ""))


@given(st.lists(st.lists(st.floats(0, 1e6), min_size=1, max_size=7), max_size=31), st.sampled_from([340, 760]))
def test_bars_of_any_amounts_stay_inside(days: list[list[float]], width: int) -> None:
    svg = stacked_bars([BarDay(f"{1 + at}", amounts) for at, amounts in enumerate(days)], [], width=width)
    for one in ET.fromstring(svg).iter():
        if "height" in one.attrib:
            assert 0 <= float(one.get("y", "")) <= float(one.get("y", "")) + float(one.get("height", "")) <= 217
            assert float(one.get("x", "")) + float(one.get("width", "")) <= width
    assert "nan" not in svg


@given(
    st.lists(st.tuples(st.floats(0.01, 500), st.floats(0, 1)), max_size=30),
    st.floats(0.01, 500),
    st.one_of(st.none(), st.floats(0.01, 500)),
)
def test_the_survival_curve_falls_within_its_band(
    raw: list[tuple[float, float]], until: float, median: float | None
) -> None:
    hours, shares = sorted({hour for hour, _ in raw}), sorted((share for _, share in raw), reverse=True)
    steps = [SurvivalStep(at, share, share / 2, (1 + share) / 2) for at, share in zip(hours, shares, strict=False)]
    svg = survival_chart(steps, until, median, "half are gone", "label")
    levels = [float(y) for y in re.findall(r"V([\d.]+)", line_of(svg))]
    assert levels == sorted(levels)
    shown = [step for step in steps if step.hours <= until]
    assert len(levels) <= len(shown)  # those closer than two units are one
    assert levels[-1:] == [round(166 - 156 * step.share) for step in shown[-1:]]
    assert bool(parts_of(svg, "s-now")) == (median is not None and median <= until)
    for one in ET.fromstring(svg).iter():
        assert all(0 <= float(part) <= 360 for part in re.findall(r"-?[\d.]+", one.get("d", "")))


def test_the_same_drawing_stands_in_a_picture_with_its_colours() -> None:
    charts = [spark_chart("a week", [1.0, None, 2.0], 1.5), stacked_chart([BarDay("1", [2.0])], ["a"], title="costs")]
    drawn = picture_svg("title", charts)
    ET.fromstring(drawn)
    style = drawn.partition("<style>")[2].partition("</style>")[0]
    kinds = {name for one in re.findall(r'class="([^"]+)"', drawn) for name in one.split()}
    assert {f".{name}" for name in kinds - {"a-text", "strong"}} <= set(re.findall(r"\.[\w-]+", style))
    assert all(f'width="{chart.width}" height="{chart.height}"' in drawn for chart in charts)
