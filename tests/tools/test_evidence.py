"""The figures of `make evidence` equal those of an independent count, and a false claim fails."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.advise import Part
from benchmarks.evidence.__main__ import main
from benchmarks.evidence.claims import Holds, Section, at_least, at_most, clustered_error, markdown
from benchmarks.evidence.clock import calendar_section
from benchmarks.evidence.speed import write_rows
from benchmarks.evidence.waiting import statements
from gpuwatch.domain.forecasts.advice import BuyVerdict
from gpuwatch.domain.history.price_series import PriceSeries
from tests.checkout import ROOT

DOCS = ROOT / "docs"
NIGHTS = [2_000_000 if hour % 24 < 6 else 3_000_000 for hour in range(24 * 20)]


def a_part(lows: list[int | None], polled: list[bool] | None = None) -> Part:
    series = PriceSeries(first_hour=24 * 20_000, lows=lows, polled=polled or [True] * len(lows), source="a test")
    return Part("made up", series)


def test_where_nights_are_cheap_a_statement_by_day_saves_what_a_night_is_cheaper() -> None:
    found = [statement for statement in statements(a_part(list(NIGHTS)), 24, 1) if statement is not None]
    assert found
    by_day = [statement for statement in found if statement.is_above]
    assert {(statement.paid, statement.at_once) for statement in by_day} == {(2.0, 3.0)}
    assert all(statement.met[0.5] for statement in found)
    assert BuyVerdict.WAIT in {statement.verdict for statement in by_day}


def test_a_statement_knows_nothing_of_what_came_after_it() -> None:
    """Prices that fall to a tenth after the date split change the paid prices, not the forecasts."""
    split = int(len(NIGHTS) * 0.6)
    fallen = [*NIGHTS[:split], *(low // 10 for low in NIGHTS[split:])]
    first, then = (next(iter(statements(a_part(list(lows)), 24, 1))) for lows in (NIGHTS, fallen))
    assert first is not None
    assert then is not None
    assert (first.verdict, first.promised, first.low, first.high) == (then.verdict, then.promised, then.low, then.high)
    assert first.paid > then.paid


def test_a_deadline_that_nobody_saw_is_left_out() -> None:
    split = int(len(NIGHTS) * 0.6)
    polled = [hour < split + 5 or hour >= split + 40 for hour in range(len(NIGHTS))]
    lows = [low if known else None for low, known in zip(NIGHTS, polled, strict=True)]
    found = list(statements(a_part(lows, polled), 24, 1))
    assert found[0] is None
    assert any(one is not None for one in found)


def test_what_falls_short_by_more_than_chance_does_not_hold() -> None:
    assert at_least("share", 0.70, 0.80, "100", error=0.05).holds is Holds.NO
    assert at_least("share", 0.70, 0.80, "10", error=0.20).holds is Holds.TOO_FEW
    assert at_least("share", 0.81, 0.80, "100").holds is Holds.YES
    assert at_most("alarms", 0.06, 0.05, "100").holds is Holds.NO


def test_values_that_move_together_count_once() -> None:
    alone = clustered_error([0.0, 1.0] * 50, list(range(100)))
    together = clustered_error([0.0] * 50 + [1.0] * 50, [0] * 50 + [1] * 50)
    assert alone == pytest.approx(1.96 * 0.5 / math.sqrt(99), rel=1e-6)
    assert together > 0.9
    assert clustered_error([0.0, 1.0], [7, 7]) == 1.0, "one day says nothing"


@pytest.mark.slow
def test_the_price_table_of_the_guides_comes_out_exactly() -> None:
    section = calendar_section(runs=1)
    table = [claim for claim in section.claims if "by day" in claim.text]
    assert [(claim.found, claim.needed, claim.holds) for claim in table] == [
        ("37.8 %, 37.8 %, 37.8 %", "37.8 %", Holds.YES),
        ("36.4 %, 36.4 %, 36.4 %", "36.4 %", Holds.YES),
    ]


def test_the_same_rows_are_written_each_time(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write_rows(tmp_path / name, 2500)
    first, second = ((tmp_path / name).read_text().splitlines() for name in ("a.csv", "b.csv"))
    assert first == second
    assert len(first) == 2501
    assert len({line.split(",")[0] for line in first[1:]}) == 3


def test_the_page_is_written_as_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--only", "planner", "--write", str(tmp_path / "page.md")])
    printed = capsys.readouterr().out
    assert code == 0
    assert (tmp_path / "page.md").read_text() == printed
    assert "| the row left out: median ratio |" in printed


def test_the_page_of_the_documents_says_how_it_was_made_and_hides_no_failure() -> None:
    page = (DOCS / "evidence.md").read_text()
    assert "`python -m benchmarks.evidence`, 20" in page, "with the whole samples, and a date"
    short = page.count("| **no** |") + page.count("| too few to tell |")
    named = [line for line in page.partition("\nOf ")[2].splitlines() if line.startswith("- ")]
    assert len(named) == short, "each is named at the end"


def test_a_section_says_what_it_left_out() -> None:
    section = Section("Subject", "advise.md", [at_least("share", 0.9, 0.8, "10 runs")], ["left out: 3 of 13"])
    lines = list(markdown(section))
    assert "- left out: 3 of 13" in lines
    assert any(line.endswith("| 10 runs | yes |") for line in lines)
