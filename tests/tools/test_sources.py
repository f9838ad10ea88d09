"""What the page about the sources says is what the commands print; a false expectation is found."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import msgspec
import pytest

from benchmarks.sources import rows as module
from benchmarks.sources.page import page
from benchmarks.sources.rows import COUNT, FOLDER, SourceRow, SourceRun, SourceVerdict, sources
from benchmarks.sources.running import run_row
from tests.checkout import ROOT

PAGE = (ROOT / "docs/sources.md").read_text(encoding="utf-8")
SOURCES = sources()
ROWS = list(chain.from_iterable(source.row for source in SOURCES))
CHEAP = [row for row in ROWS if row.runs and not row.is_slow]


@pytest.mark.parametrize("row", CHEAP, ids=lambda row: str(row.number))
def test_a_command_prints_what_the_page_says(row: SourceRow) -> None:
    assert run_row(row).faults == ()


def test_most_commands_run_here_and_the_others_in_make_evidence() -> None:
    assert len(CHEAP) > 100
    assert "-m benchmarks.sources --write docs/sources.md" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_page_is_that_of_the_rows_and_has_every_number() -> None:
    (day,) = re.findall(r"(?m)^`python -m benchmarks\.sources`, (\d{4}-\d\d-\d\d)\.$", PAGE)
    assert page(SOURCES, day) == PAGE, "python -m benchmarks.sources --write docs/sources.md"
    numbers = [int(number) for number in re.findall(r"(?m)^\| (\d+) \|", PAGE)]
    assert numbers == list(range(1, COUNT + 1))


def test_another_figure_another_exit_code_and_a_slip_are_found() -> None:
    right = SourceRun('plan job "1x H100 @ 8 for 72h"', ("$576.00",))
    wrong = [
        (msgspec.structs.replace(right, prints=("$575.00",)), "does not print '$575.00'"),
        (msgspec.structs.replace(right, code=1), "exit code 0 instead of 1"),
        (msgspec.structs.replace(right, command="plan jobs"), "exit code 2 instead of 0"),
    ]
    for run, fault in [(right, None), *wrong]:
        row = SourceRow(number=1, asks="a figure", verdict=SourceVerdict.YES, runs=(run,))
        found = run_row(row).faults
        assert [fault in one for one in found] == [True] if fault else found == ()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("number = 1\n", "number = 2\n"), "not so: [1, 2]"),
        (('verdict = "yes"', 'verdict = "no"'), "1: a reason belongs to what is not yes"),
        (("tests/process/test_news_by_itself.py::", "tests/process/test_news_by_itself.py::x_"), "does not exist"),
        (('prints = ["$576.00"]', "prints = []"), "no figure is expected"),
    ],
)
def test_a_row_that_proves_nothing_is_refused(
    change: tuple[str, str], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in FOLDER.glob("s*.toml"):
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(text.replace(*change, 1) if path.name == "s0.toml" else text)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=re.escape(fault)):
        sources(tmp_path)
