"""The gate on call counts: what passes, and what fails."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.call_counts import BUDGETS, WORKLOADS, verdict


def test_a_count_within_five_percent_of_its_budget_passes() -> None:
    assert verdict("check_64", 1050, 1000)[1]


def test_a_count_of_more_is_refused_with_what_to_do() -> None:
    line, within = verdict("check_64", 1051, 1000)
    assert not within
    assert "make it cheaper, or raise the budget with a reason" in line


def test_without_a_budget_for_this_python_nothing_is_refused() -> None:
    assert verdict("check_64", 10**9, None)[1]


def test_only_calls_of_the_block_are_counted() -> None:
    program = (
        "from benchmarks.call_counts import CallCounter\n"
        "import threading\n"
        "counter = CallCounter()\n"
        "def work(): return [abs(number) for number in range(100)]\n"
        "def thread():\n    one = threading.Thread(target=work); one.start(); one.join()\n"
        "work(); thread(); before = counter.total\n"
        "with counter.active():\n    work(); thread()\n"
        "counted = counter.total\nwork(); thread()\n"
        "print(before, counted, counter.total - counted)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    before, counted, after = map(int, done.stdout.split())
    assert (before, after) == (0, 0)
    assert 200 < counted < 400


def test_every_workload_has_a_budget() -> None:
    text = BUDGETS.read_text(encoding="utf-8")
    assert [name for name in WORKLOADS if f"\n{name} = " not in text] == []
