"""`--html FILE`: pages that load nothing, show the same as the terminal, and treat no text as markup."""

from __future__ import annotations

import gzip
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpuwatch.app.history.svg_charts import SvgLine, point_chart, range_chart, step_chart
from gpuwatch.cli.html import recorded_page
from gpuwatch.cli.output import RecordedTable, Recording
from tests.cli.conftest import SERIES, Shell

VAST = SERIES.with_name("vastai-offers-2026-02-27_03-03.csv.gz")
HISTORY = ("history", "H100 SXM", "--data", str(SERIES))
CALENDAR = ("calendar", "H100 SXM", "--data", str(SERIES))
BACKTEST = ("backtest", "--gpu", "H100", "--count", "8", "--max-price", "1.85", "--data", str(SERIES))
SWEEP = ("backtest", "--gpu", "H100", "--count", "8", "--sweep", "max_price=1.80:1.95:0.05", "--data", str(SERIES))
PLAN = (*"plan job --model 8B --method qlora --tokens 100M --under 2 --set".split(), f"data={VAST}")  # noqa: SIM905


class Page(HTMLParser):
    """Collects tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def written(path: Path) -> Page:
    """Parse the page, which has no external references."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not {"src", "href", "xlink:href", "srcset", "onload"} & {name for name, _ in page.attributes}
    assert "url(" not in text.replace("url(#hatch)", "")  # a pattern within the page
    assert "http" not in text.replace("http-equiv", "")
    assert "@import" not in text
    assert "prefers-color-scheme:dark" in text.replace(" ", "")
    return page


@pytest.mark.parametrize(
    ("argv", "verdict", "also"),
    [
        (HISTORY, "lowest price", "of 366 h"),
        (CALENDAR, "night: no effect", "hours with a price, of"),
        (BACKTEST, "mean price", "unknown (not polled"),
        (SWEEP, "The lowest mean price, $", "unknown (not polled"),
        (PLAN, "uncertain for $2.00", "excluded, of 226 offers"),
    ],
    ids=["history", "calendar", "backtest", "sweep", "plan"],
)
def test_a_page_has_verdict_chart_and_all_that_was_printed(
    shell: Shell, argv: tuple[str, ...], verdict: str, also: str
) -> None:
    ran = shell(*argv, "--html", "page.html")
    assert ran.code in {0, 1}, ran.err
    page = written(shell.folder / "page.html")
    assert "svg" in page.tags
    assert "table" in page.tags
    text = "\n".join(page.texts)
    assert verdict in text
    assert also in text
    whole = (shell.folder / "page.html").read_text()
    assert whole.index(verdict) < whole.index("<svg")


def test_the_report_of_a_data_set_is_written_where_it_is_asked_for(shell: Shell) -> None:
    rows = [{"text": f"question {number % 7} about the weather & <b>rain</b>"} for number in range(60)]
    (shell.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ran = shell("dataset", "audit", "rows.jsonl", "--html", "page.html")
    assert ran.code == 0, ran.err
    text = (shell.folder / "page.html").read_text()
    assert "<b>rain" not in text
    assert "src=" not in text
    assert "http://" not in text


@pytest.mark.parametrize("machine", ["--json", "--csv"])
def test_a_page_is_for_people(shell: Shell, machine: str) -> None:
    ran = shell(*HISTORY, machine, "--html", "page.html")
    assert (ran.code, ran.err.strip()) == (2, "use either --html, or --json and --csv")


def test_a_page_that_cannot_be_written_is_an_error_of_one_line(shell: Shell) -> None:
    ran = shell(*HISTORY, "--html", "no/such/folder.html")
    assert ran.code == 2
    assert "cannot write no/such/folder.html" in ran.err


def test_what_a_host_wrote_is_text_everywhere(shell: Shell) -> None:
    evil = "<script>alert(1)</script>"
    table = RecordedTable(evil, [evil], [False], [[evil + "\x1b[31m"]])
    charts = [range_chart(evil, [(evil, 1.0, 2.0)]), point_chart(evil, [(1.0, 2.0, evil)], evil, evil)]
    path = shell.folder / "page.html"
    path.write_text(recorded_page(evil, [evil], charts, Recording([evil + "!", table], [evil])))
    assert "script" not in written(path).tags
    assert "\x1b" not in path.read_text()


def test_the_gpu_name_of_a_file_is_escaped_on_the_page(shell: Shell) -> None:
    """Untrusted place names appear in the table of a plan."""
    with gzip.open(VAST, "rt", encoding="utf-8") as series:
        text = series.read()
    (shell.folder / "prices.csv").write_text(text.replace("Taiwan", "<img src=x onerror=alert(1)>"))
    shell(*PLAN[:-1], "data=prices.csv", "--set", "limit=300", "--html", "page.html")
    written(shell.folder / "page.html")


def test_steps_are_never_diagonal() -> None:
    from datetime import UTC, datetime, timedelta

    times = [datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(4)]
    chart = step_chart("t", times, [SvgLine("lowest", [1.0, 2.0, None, 3.0])])
    assert chart is not None
    path = chart.body.split('class="p-line" d="')[1].split('"')[0]
    assert path.count("M") == 2
    assert "L" not in path


def test_the_area_behind_a_line_spans_its_quartiles_and_nothing_where_they_are_unknown() -> None:
    from datetime import UTC, datetime, timedelta

    times = [datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(3)]
    line = SvgLine("median", [1.0, 2.0, 1.0], ([0.5, None, 0.5], [1.5, 2.5, 1.5]))
    chart = step_chart("t", times, [line], limit=9.0)
    assert chart is not None
    area = chart.body.split('class="s-box" d="')[1].split('"')[0]
    assert area.count("Z") == 2
    assert "limit $9.00" in chart.body  # the axis is widened to it
