"""How often a machine's lowest winning bid stood over a bid, from what is recorded of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.outbid_risk import LEAST_WATCHED_S, RISK_DAYS, RecordedBid, outbid_risk
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S

NOW_S = 1_790_000_000 // DAY_S * DAY_S
SINCE_S = NOW_S - RISK_DAYS * DAY_S
TIMES = st.integers(SINCE_S - 3 * DAY_S, NOW_S + DAY_S)


@st.composite
def histories(draw: st.DrawFn) -> list[RecordedBid]:
    """Prices of one machine: each ends when the next begins, or the machine is away in between."""
    edges = sorted(draw(st.lists(TIMES, max_size=24, unique=True)))
    found = []
    for from_s, until_s in zip(edges[::2], edges[1::2], strict=False):
        gone_s = until_s if draw(st.booleans()) else None
        found.append(RecordedBid(from_s, until_s, draw(st.integers(1, 9)), gone_s))
    return found


def test_a_share_and_its_rises() -> None:
    hours = [NOW_S - 48 * HOUR_S + number * HOUR_S for number in range(49)]
    prices = [
        RecordedBid(hours[0], hours[10], 5),
        RecordedBid(hours[10], hours[22], 9),
        RecordedBid(hours[22], hours[48], 7),
    ]
    low, equal, high = (outbid_risk(prices, bid, NOW_S) for bid in (6, 7, 9))
    assert (low.watched_s, low.over_share, low.rises) == (48 * HOUR_S, 38 / 48, 1)
    assert (equal.over_share, equal.rises) == (12 / 48, 1)
    assert (high.over_share, high.rises) == (0.0, 0)


def test_a_machine_that_came_back_dearer_rose_and_was_away() -> None:
    gone = NOW_S - 20 * HOUR_S
    prices = [RecordedBid(NOW_S - 60 * HOUR_S, gone, 5, gone), RecordedBid(NOW_S - 15 * HOUR_S, NOW_S, 9)]
    risk = outbid_risk(prices, 6, NOW_S)
    assert (risk.rises, risk.away_s, risk.watched_s) == (1, 5 * HOUR_S, 55 * HOUR_S)
    left = outbid_risk(prices[:1], 6, NOW_S)
    assert (left.rises, left.away_s) == (0, 20 * HOUR_S), "it is away until now"


def test_what_is_over_at_the_beginning_did_not_rise() -> None:
    risk = outbid_risk([RecordedBid(SINCE_S - DAY_S, NOW_S, 9)], 6, NOW_S)
    assert (risk.over_share, risk.rises, risk.watched_s) == (1.0, 0, RISK_DAYS * DAY_S)


def test_less_than_a_day_is_no_history() -> None:
    for watched_s in (0, LEAST_WATCHED_S - 1):
        risk = outbid_risk([RecordedBid(NOW_S - watched_s, NOW_S, 9)], 6, NOW_S)
        assert (risk.is_known, risk.over_share) == (False, None)
    assert outbid_risk([], 6, NOW_S).watched_s == 0


@given(histories(), st.integers(0, 10), st.randoms(use_true_random=False))
def test_the_figures_agree_with_each_other(prices: list[RecordedBid], bid: int, random: object) -> None:
    risk = outbid_risk(prices, bid, NOW_S)
    assert 0 <= risk.over_s <= risk.watched_s
    assert risk.watched_s + risk.away_s <= RISK_DAYS * DAY_S
    assert 0 <= risk.rises <= len(prices)
    assert (risk.over_s > 0) >= (risk.rises > 0)
    random.shuffle(prices)  # type: ignore[attr-defined]
    assert outbid_risk(prices, bid, NOW_S) == risk


@given(histories(), st.integers(0, 9))
def test_a_higher_bid_is_never_riskier(prices: list[RecordedBid], bid: int) -> None:
    lower, higher = outbid_risk(prices, bid, NOW_S), outbid_risk(prices, bid + 1, NOW_S)
    assert higher.over_s <= lower.over_s
    assert (higher.watched_s, higher.away_s) == (lower.watched_s, lower.away_s)
    assert outbid_risk(prices, 10, NOW_S).over_s == 0
