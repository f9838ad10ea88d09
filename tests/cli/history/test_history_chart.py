"""Charts in text, and pictures."""

from __future__ import annotations

import math
import re
import sys
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from gpuwatch.app.history.svg_charts import SvgLine, picture, step_chart
from gpuwatch.cli.chart import line_chart
from gpuwatch.cli.html import save_page
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint


def plot(text: str) -> list[str]:
    """The part between the axes."""
    return [line.partition("┤" if "┤" in line else "│")[2] for line in text.splitlines() if "┤" in line or "│" in line]


def test_the_dearest_is_on_top_and_the_cheapest_at_the_bottom() -> None:
    rows = plot(line_chart([0, 1, 2, 3], {"lowest": [1, 2, 3, 4]}, "H100", width=60))
    assert len(rows) == 12
    assert rows[0].strip()
    assert rows[0].index(rows[0].strip()) > 40
    assert rows[-1][:1].strip()


def test_a_gap_is_left_open() -> None:
    with_gap = plot(line_chart(range(9), {"lowest": [2, 2, 2, 2, None, 2, 2, 2, 2]}, "H100", width=60))
    (line,) = [row for row in with_gap if row.strip()]
    assert " " in line.strip()
    whole = plot(line_chart(range(9), {"lowest": [2] * 9}, "H100", width=60))
    assert " " not in next(row for row in whole if row.strip()).strip()


def test_where_nothing_was_polled_is_shaded_and_where_nothing_was_on_offer_is_not() -> None:
    ys = [2, 2, 2, None, None, None, 2, 2, None, None, None, 3]
    unknown = [3 <= at < 6 for at in range(12)]
    text = line_chart(range(12), {"lowest": ys}, "H100", unknown=unknown, width=64)
    rows = plot(text)
    assert all("░" in row for row in rows)
    assert max(row.rindex("░") for row in rows) < 40
    assert "not polled" in text
    assert "not polled" not in line_chart(range(12), {"lowest": ys}, "H100", width=64)


def test_a_line_that_is_flat_alone_or_absent_is_no_fault() -> None:
    assert "━ lowest" in line_chart([5], {"lowest": [2.5]}, "H100", width=60)
    assert "━ lowest" in line_chart([1, 2], {"lowest": [0.0, 0.0]}, "H100", width=60)
    assert line_chart([1, 2], {"lowest": [None, None]}, "H100") == "H100: nothing to draw"
    assert line_chart([1, 2], {"lowest": [math.inf, math.nan]}, "H100") == "H100: nothing to draw"


def test_no_line_is_wider_than_asked() -> None:
    series = {"lowest": [float(at % 17) for at in range(500)], "median": [9.0] * 500}
    text = line_chart(range(500), series, "H100", width=70, x_text=lambda x: f"day {x:.0f}")
    assert max(map(len, text.splitlines())) <= 70


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_colours_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch, no_colour: str) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = line_chart([1, 2], {"lowest": [1, 2]}, "H100", width=60)
    assert ("\x1b[" in text) == (not no_colour)


HOURS = [datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in range(4)]


def drawn() -> bytes:
    """A picture of one chart."""
    chart = step_chart("lowest <price>", HOURS, [SvgLine("lowest", [1.0, 2.0, None, 3.0])], limit=2.5)
    return picture("H100 at Zürich", [chart], ["366 h — 4 of them unknown"])


def test_a_picture_is_the_same_again_and_holds_text_without_any_font_of_the_system(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    assert drawn().startswith(b"\x89PNG\r\n\x1a\n")
    assert drawn() == drawn()
    with Image.open(BytesIO(drawn())) as shown:
        assert shown.width == 1200
        heading = shown.convert("L").crop((30, 30, 400, 56))
        assert heading.getextrema()[0] < 80  # ink: the title is there, in the font of the package


def test_a_picture_that_cannot_be_written_is_reported_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        save_page(tmp_path / "none" / "a.png", b"")
    save_page(tmp_path / "a.png", b"picture")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UsageError, match=re.escape(install_hint("analysis"))):
        drawn()
