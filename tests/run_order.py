"""The order in which several workers run the tests (pytest-xdist, `--dist worksteal`).

Each worker starts with an equal, contiguous part of the list; a worker that has finished its part takes tests from the
end of another one's.

- Slow tests mostly wait: they are spread evenly over the first two thirds of all parts, so that others compute while
  one waits, and none starts when there is no other work left.
- Tests that share a process (tests/own_process.py), a daemon and a browser, or the syntax trees of the package are
  together, at the start of a part.
- Tests that share a fixture of their module count as one slow test: pytest ends such a fixture before the next test of
  another module, and starts it again for the next one of its own.
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
EVERY_MODULES = "_no_garbage_stays"  # the fixture of tests/conftest.py


def arranged(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the same tests in that order. Equal on every worker, if `items` is."""
    sizes = [(len(items) + n) // workers for n in range(workers)]  # like worksteal: the smaller parts first
    own: dict[Paths, list[pytest.Item]] = {row: [] for row in TOGETHER}
    slow: dict[str, list[pytest.Item]] = {}  # each alone, or those that share a fixture of their module
    others: list[pytest.Item] = []
    for item in items:
        place, module = place_of(item, TOGETHER), _module_with_a_fixture(item)
        if place:
            own[place].append(item)
        elif module or item.get_closest_marker("slow"):
            slow.setdefault(module or item.nodeid, []).append(item)
        else:
            others.append(item)
    ordered: list[pytest.Item] = []
    for number, size in enumerate(sizes):
        part_own, part_slow = _share(own, number, workers), list(slow.values())[number::workers]
        room = max(0, size - len(part_own) - sum(map(len, part_slow)))
        ordered += part_own + _mixed(part_slow, others[:room])
        del others[:room]
    return ordered + others


def _share(groups: Mapping[Paths, list[pytest.Item]], number: int, workers: int) -> list[pytest.Item]:
    """Return the tests of every group that starts in this part."""
    return [item for group in list(groups.values())[number::workers] for item in group]


def _module_with_a_fixture(item: pytest.Item) -> str | None:
    """Return the module of a test that uses a fixture which is started once for its module; None: it uses none."""
    known = getattr(item, "_fixtureinfo", None)
    used = known.name2fixturedefs.items() if known else ()
    is_shared = any(found[-1].scope == "module" and name != EVERY_MODULES for name, found in used)
    return item.nodeid.partition("::")[0] if is_shared else None


def _mixed(slow: Sequence[Sequence[pytest.Item]], quick: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Place slow tests at equal distances within the first two thirds."""
    distance = 2 * len(quick) // (3 * len(slow)) if slow else 0
    mixed: list[pytest.Item] = []
    for number, together in enumerate(slow):
        mixed += [*together, *quick[number * distance : (number + 1) * distance]]
    return mixed + list(quick[len(slow) * distance :])
