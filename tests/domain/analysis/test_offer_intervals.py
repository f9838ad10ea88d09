"""Sightings become runs: against a model that goes from moment to moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.analysis.offer_intervals import CompletePoll, PollTimeline, PriceRun, price_runs, run_end

MOMENTS = st.integers(0, 20)
PRICES = st.sampled_from([100, 200])
LOOKS = st.sets(st.builds(CompletePoll, MOMENTS, st.sampled_from([None, None, 50, 100])))
POINTS = st.dictionaries(MOMENTS, PRICES)


def model(points: dict[int, int], looks: set[CompletePoll]) -> list[PriceRun]:
    """Moment by moment: a price stands until another one is seen, or a poll that would have shown it does not."""
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


@given(points=POINTS, looks=LOOKS)
def test_runs_are_what_was_seen_without_a_miss(points: dict[int, int], looks: set[CompletePoll]) -> None:
    assert price_runs(sorted(points.items()), PollTimeline(looks)) == model(points, looks)


@given(points=POINTS, looks=LOOKS)
def test_a_run_is_over_at_the_first_moment_that_shows_it(points: dict[int, int], looks: set[CompletePoll]) -> None:
    found = PollTimeline(looks)
    made = price_runs(sorted(points.items()), found)
    for at, run in enumerate(made):
        gone_s = run_end(made, at, found)
        later = [one.from_s for one in made[at + 1 :]]
        later += [
            look.at_s
            for look in looks
            if look.at_s > run.seen_s and (look.to_microusd is None or run.microusd <= look.to_microusd)
        ]
        assert gone_s == min(later, default=None)


def test_a_price_that_comes_back_after_a_miss_is_a_run_of_its_own() -> None:
    looks = PollTimeline({CompletePoll(1), CompletePoll(2), CompletePoll(3)})
    assert price_runs([(1, 100), (3, 100)], looks) == [PriceRun(1, 1, 100), PriceRun(3, 3, 100)]
    assert price_runs([(1, 100), (2, 100), (3, 100)], looks) == [PriceRun(1, 3, 100)]


def test_a_look_up_to_a_price_misses_nothing_dearer() -> None:
    looks = PollTimeline({CompletePoll(2, to_microusd=100)})
    assert price_runs([(1, 200), (3, 200)], looks) == [PriceRun(1, 3, 200)]
    assert price_runs([(1, 100), (3, 100)], looks) == [PriceRun(1, 1, 100), PriceRun(3, 3, 100)]
