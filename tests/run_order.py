"""The order in which several workers run the tests (pytest-xdist, `--dist worksteal`).

Each worker starts with an equal, contiguous part of the list; a worker that has finished its part takes tests from the
end of another one's.

- Slow tests mostly wait: they are spread evenly over the first two thirds of all parts, so that others compute while
  one waits, and none starts when there is no other work left.
- Tests that share a process (tests/own_process.py), a daemon and a browser, or the syntax trees of the package are
  together, at the start of a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.own_process import PLACES, Paths, place_of

# each row: files whose tests share what takes seconds to start; apart, each test would start it again
SHARED_STARTS = (
    ("tests/web/test_pages.py",),
    ("tests/web/test_every_page.py",),
    ("tests/test_layout.py",),
    ("tests/documents/test_site.py",),
)
TOGETHER = PLACES + SHARED_STARTS


def arranged(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the same tests in that order. Equal on every worker, if `items` is."""
    sizes = [(len(items) + n) // workers for n in range(workers)]  # like worksteal: the smaller parts first
    own: dict[Paths, list[pytest.Item]] = {row: [] for row in TOGETHER}
    slow: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        place = place_of(item, TOGETHER)
        if place:
            own[place].append(item)
        elif item.get_closest_marker("slow"):
            slow.append(item)
        else:
            others.append(item)
    ordered: list[pytest.Item] = []
    for number, size in enumerate(sizes):
        part_own, part_slow = _share(own, number, workers), slow[number::workers]
        room = max(0, size - len(part_own) - len(part_slow))
        ordered += part_own + _mixed(part_slow, others[:room])
        del others[:room]
    return ordered + others


def _share(groups: Mapping[Paths, list[pytest.Item]], number: int, workers: int) -> list[pytest.Item]:
    """Return the tests of every group that starts in this part."""
    return [item for group in list(groups.values())[number::workers] for item in group]


def _mixed(slow: Sequence[pytest.Item], quick: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Place slow tests at equal distances within the first two thirds."""
    distance = 2 * len(quick) // (3 * len(slow)) if slow else 0
    mixed: list[pytest.Item] = []
    for number, item in enumerate(slow):
        mixed += [item, *quick[number * distance : (number + 1) * distance]]
    return mixed + list(quick[len(slow) * distance :])
