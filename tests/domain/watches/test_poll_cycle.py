"""Which queries belong to a watch's poll cycle."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.domain.watches.decide import cycle_members

AGES = {"fast": timedelta(minutes=1), "slow": timedelta(minutes=10), "hourly": timedelta(minutes=11)}


def test_a_provider_polled_more_than_ten_times_as_rarely_does_not_hold_up_the_cycle() -> None:
    assert cycle_members({(name,) for name in AGES}, AGES.__getitem__) == {("fast",), ("slow",)}


def test_slow_providers_alone_make_up_a_cycle_of_their_own() -> None:
    assert cycle_members({("hourly",)}, AGES.__getitem__) == {("hourly",)}
    assert cycle_members(set(), AGES.__getitem__) == frozenset()
