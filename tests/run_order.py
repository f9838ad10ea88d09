"""The order in which several workers run the tests (pytest-xdist, `--dist worksteal`).

Each worker starts with an equal, contiguous part of the list; a worker that has finished its part takes tests from the
end of another one's.

- Slow tests mostly wait: they are spread evenly over the first two thirds of all parts, so that others compute while
  one waits, and none starts when there is no other work left.
- Tests that load the same large libraries start in one part, so that not every worker loads every library.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

# each row: parts of the names of tests that load the same libraries (tens of megabytes that stay)
LARGE_LIBRARIES = (
    ("tests/providers/aws/", "tests/emulator/test_emulator_aws", "tests/providers/test_golden", "::Test_aws::"),
    ("tests/providers/nebius/", "::Test_nebius::"),
    ("tests/app/dataset/", "tests/cli/test_dataset", "tests/domain/analysis/test_survival"),
    ("tests/storage/test_price_export", "tests/cli/test_price_files", "tests/cli/test_history", "tests/cli/test_cal"),
)


def arranged(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the same tests in that order. Equal on every worker, if `items` is."""
    sizes = [(len(items) + n) // workers for n in range(workers)]  # like worksteal: the smaller parts first
    slow = [item for item in items if item.get_closest_marker("slow")]
    first: list[list[pytest.Item]] = [[] for _ in range(workers)]
    others: list[pytest.Item] = []
    for item in items:
        if not item.get_closest_marker("slow"):
            group = _libraries_of(item)
            (others if group is None else first[group % workers]).append(item)
    ordered: list[pytest.Item] = []
    for number, size in enumerate(sizes):
        part_slow = slow[number::workers]
        room = max(0, size - len(part_slow))
        others = first[number] + others  # tests that do not fit move to the next part
        ordered += _mixed(part_slow, others[:room])
        del others[:room]
    return ordered + others


def _libraries_of(item: pytest.Item) -> int | None:
    for number, places in enumerate(LARGE_LIBRARIES):
        if any(place in item.nodeid for place in places):
            return number
    return None


def _mixed(slow: Sequence[pytest.Item], quick: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Place slow tests at equal distances within the first two thirds."""
    distance = 2 * len(quick) // (3 * len(slow)) if slow else 0
    mixed: list[pytest.Item] = []
    for number, item in enumerate(slow):
        mixed += [item, *quick[number * distance : (number + 1) * distance]]
    return mixed + list(quick[len(slow) * distance :])
