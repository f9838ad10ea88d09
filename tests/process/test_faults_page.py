"""docs/faults.md names only existing tests, and every fault that concerns money."""

from __future__ import annotations

import re

from tests.process.daemon_child import ROOT

PAGE = (ROOT / "docs/faults.md").read_text()
MONEY = (
    "B01 B02 B03 B04 B05 B06 B07 B08 B09 B14 B15 B16 M01 M02 M03 M04 M05 M09 M11 S01 S02 S03 C02 C05 C11 P04 P05 P06"
)


def test_every_test_that_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:tests|gpuwatch/testing)/[\w/]+\.py)::(test_\w+)`", PAGE))
    assert len(named) > 50
    missing = [f"{path}::{test}" for path, test in named if f"def {test}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_every_fault_around_the_money_has_a_line() -> None:
    wanted = {f"L{n:02}" for n in range(1, 33)} | {f"K{n:02}" for n in range(1, 21)} | set(MONEY.split())
    assert wanted - set(re.findall(r"(?m)^\| ([A-Z]\d\d) \|", PAGE)) == set()
