"""Charts in text, and pictures."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.chart import line_chart, save_png
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


def draw(axes: Any) -> None:
    axes.plot([1, 2], [3, 4])


def test_a_picture_is_written_and_is_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    save_png(tmp_path / "a.png", draw)
    save_png(tmp_path / "b.png", draw)
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_a_folder_that_is_not_there_is_reported_in_a_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UsageError, match="cannot write"):
        save_png(tmp_path / "none" / "a.png", draw)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=re.escape(install_hint("analysis"))):
        save_png(tmp_path / "a.png", draw)
