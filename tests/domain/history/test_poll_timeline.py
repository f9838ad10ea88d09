"""Observations become runs: compared with a model that goes from moment to moment."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.market_history import CompletePoll
from gpuwatch.domain.history.poll_timeline import NEVER_S, PollTimeline, PriceRuns, price_runs

MOMENTS = st.integers(0, 20)
PRICES = st.sampled_from([100, 200])
LOOKS = st.sets(st.builds(CompletePoll, MOMENTS, st.sampled_from([None, None, 50, 100])))
POINTS = st.dictionaries(MOMENTS, PRICES)


class PriceRun(NamedTuple):
    """One price of one offer."""

    from_s: int
    seen_s: int
    microusd: int


def timeline(looks: set[CompletePoll]) -> PollTimeline:
    complete = np.array([look.at_s for look in looks if look.to_microusd is None], np.int64)
    return PollTimeline(complete, (look for look in looks if look.to_microusd is not None))


def runs_of(offers: list[dict[int, int]], looks: set[CompletePoll]) -> PriceRuns:
    """All runs of several offers at once."""
    points = [(number, *point) for number, offer in enumerate(offers) for point in sorted(offer.items())]
    return price_runs(*np.array(points, np.int64).reshape(-1, 3).T, timeline(looks))


def of_offer(runs: PriceRuns, number: int) -> list[PriceRun]:
    mine = runs.offer == number
    columns = (column[mine].tolist() for column in (runs.from_s, runs.seen_s, runs.microusd))
    return [PriceRun(*run) for run in zip(*columns, strict=True)]


def model(points: dict[int, int], looks: set[CompletePoll]) -> list[PriceRun]:
    """Moment by moment: a price lasts until another one is seen, or a poll lacks it that would have shown it."""
    made: list[PriceRun] = []
    standing = None
    for at_s in range(21):
        if at_s in points:
            if standing is not None and standing.microusd == points[at_s]:
                standing = made[-1] = standing._replace(seen_s=at_s)
            else:
                standing = PriceRun(at_s, at_s, points[at_s])
                made.append(standing)
        elif standing is not None and any(
            look.at_s == at_s and (look.to_microusd is None or standing.microusd <= look.to_microusd) for look in looks
        ):
            standing = None
    return made


@given(offers=st.lists(POINTS, max_size=4), looks=LOOKS)
def test_runs_are_what_was_seen_without_a_miss(offers: list[dict[int, int]], looks: set[CompletePoll]) -> None:
    runs = runs_of(offers, looks)
    assert [of_offer(runs, number) for number in range(len(offers))] == [model(points, looks) for points in offers]


@given(offers=st.lists(POINTS, max_size=4), looks=LOOKS)
def test_a_run_is_over_at_the_first_moment_that_shows_it(
    offers: list[dict[int, int]], looks: set[CompletePoll]
) -> None:
    made = runs_of(offers, looks)
    for at, ended_s in enumerate(made.ended_s.tolist()):
        later: list[int] = made.from_s[at + 1 :][made.offer[at + 1 :] == made.offer[at]].tolist()
        later += [
            look.at_s
            for look in looks
            if look.at_s > made.seen_s[at] and (look.to_microusd is None or made.microusd[at] <= look.to_microusd)
        ]
        assert ended_s == min(later, default=NEVER_S)


def test_a_price_that_comes_back_after_a_miss_is_a_run_of_its_own() -> None:
    looks = {CompletePoll(1), CompletePoll(2), CompletePoll(3)}
    assert of_offer(runs_of([{1: 100, 3: 100}], looks), 0) == [PriceRun(1, 1, 100), PriceRun(3, 3, 100)]
    assert of_offer(runs_of([{1: 100, 2: 100, 3: 100}], looks), 0) == [PriceRun(1, 3, 100)]


def test_a_look_up_to_a_price_misses_nothing_dearer() -> None:
    looks = {CompletePoll(2, to_microusd=100)}
    assert of_offer(runs_of([{1: 200, 3: 200}], looks), 0) == [PriceRun(1, 3, 200)]
    assert of_offer(runs_of([{1: 100, 3: 100}], looks), 0) == [PriceRun(1, 1, 100), PriceRun(3, 3, 100)]


def test_the_daemon_starts_without_arrays() -> None:
    """numpy takes 16 MB and 80 ms; the few functions of a daemon that need it import it."""
    program = (
        "import importlib, pkgutil, sys\n"
        "import gpuwatch.bootstrap, gpuwatch.daemon, gpuwatch.engine\n"
        "for part in (gpuwatch.bootstrap, gpuwatch.daemon, gpuwatch.engine):\n"
        "    for module in pkgutil.walk_packages(part.__path__, part.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.strip() == "False"
