"""Progress without a terminal."""

from __future__ import annotations

import pytest

from gpuwatch.cli.output import LineProgress


def test_a_pipe_gets_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = LineProgress("a.jsonl: ", lambda: now[0])
    for second in range(0, 36, 4):
        now[0] = float(second)
        lines.report("wording", second, 40 if second < 30 else 0)
    assert capsys.readouterr().err.splitlines() == ["a.jsonl: wording: 30%", "a.jsonl: wording: 60%"]
    now[0] = 40.0
    lines.report("equal texts", 1234, 0)
    assert capsys.readouterr().err == "a.jsonl: equal texts: 1,234\n"


def test_quick_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    LineProgress("", lambda: 0.0).report("reading", 1, 2)
    assert capsys.readouterr().err == ""
