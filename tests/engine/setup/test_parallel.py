"""Several providers in parallel: each has exactly one outcome, and none is waited for forever."""

from __future__ import annotations

import threading

import pytest

from gpuwatch.engine.setup.parallel import ParallelResult, run_in_parallel
from gpuwatch.errors import ProviderDown


def test_outcomes_come_as_they_are_there_not_as_they_were_asked_for() -> None:
    second_is_out = threading.Event()

    def do(name: str) -> str:
        if name == "first":
            assert second_is_out.wait(20)
        return name.upper()

    found = []
    for outcome in run_in_parallel(["first", "second"], do):
        found.append((outcome.name, outcome.result))
        second_is_out.set()
    assert found == [("second", "SECOND"), ("first", "FIRST")]


def test_who_is_late_is_named_once_and_never_heard_of_again() -> None:
    gate = threading.Event()
    found = list(run_in_parallel(["slow"], lambda _name: gate.wait(20), within_s=0.05))
    gate.set()
    assert found == [ParallelResult(name="slow", error="no answer within 0.05 s", late=True)]


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (ProviderDown("one: 502"), "502"),
        (SystemExit(3), "internal error (SystemExit: 3)"),
        (
            ValueError("api_key=sk-1234567890abcdef\nof the owner"),
            "internal error (ValueError: api_key=*** of the owner)",
        ),
    ],
)
def test_a_fault_of_any_kind_is_one_line_without_secrets(fault: BaseException, line: str) -> None:
    def do(_name: str) -> None:
        raise fault

    assert list(run_in_parallel(["one"], do)) == [ParallelResult(name="one", error=line)]


def test_nobody_asked_is_nothing_to_wait_for() -> None:
    assert list(run_in_parallel([], str)) == []
