"""`min_reputation`: the reliability of a poll, corrected by the results of your own launches on that machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.offer import OfferTerms
from gpuwatch.domain.watches.match import failures, matches, price_for
from gpuwatch.domain.watches.past_limits import MachineRecord, reputation
from gpuwatch.domain.watches.watch import Watch
from tests.builders import NOON, a_watch, an_offer

counts = st.integers(0, 1000)


def wanting(least: float, good: int = 0, bad: int = 0) -> Watch:
    return a_watch(min_reputation=least, records={("vastai", "77"): MachineRecord(good, bad)})


@pytest.mark.parametrize(
    ("reliability", "good", "bad", "is_"),
    [(1.0, 0, 0, 1.0), (None, 0, 0, 0.9), (0.98, 0, 1, 0.784), (0.98, 0, 3, 0.56), (0.8, 16, 0, 0.96)],
)
def test_a_poll_counts_as_four_launches(reliability: float | None, good: int, bad: int, is_: float) -> None:
    assert reputation(reliability, MachineRecord(good, bad)) == pytest.approx(is_)


@given(st.floats(0, 1), counts, counts)
def test_it_is_a_share_that_success_raises_and_failure_lowers(reliability: float, good: int, bad: int) -> None:
    is_ = reputation(reliability, MachineRecord(good, bad))
    assert 0 <= is_ <= 1
    assert (
        reputation(reliability, MachineRecord(good, bad + 1))
        <= is_
        <= reputation(reliability, MachineRecord(good + 1, bad))
    )


def test_a_machine_that_failed_you_is_refused_and_the_reason_says_how_often() -> None:
    offer = an_offer(reliability=0.99)
    assert matches(wanting(0.95), [offer], {}, NOON)
    watch = wanting(0.95, good=1, bad=2)
    assert not matches(watch, [offer], {}, NOON)
    (found,) = failures(watch, offer, price_for(watch, offer, {}), NOON)
    assert found.text == ("min_reputation: 0.709 < 0.95 (reliability 0.99; your launches there: 1 succeeded, 2 failed)")
    assert matches(watch, [an_offer(reliability=0.99, machine_id="78")], {}, NOON)


def test_stock_is_another_machine_each_time() -> None:
    offer = an_offer(reliability=0.99, terms=OfferTerms(fungible=True))
    assert matches(wanting(0.95, bad=9), [offer], {}, NOON)
