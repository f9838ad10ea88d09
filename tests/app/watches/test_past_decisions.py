"""The moment that a person means, and the words for what was decided then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpuwatch.app.watches.why.past_decisions import (
    PastWhy,
    blocked_by,
    decision_words,
    has_acted,
    past_moment,
    past_span,
    past_why_view,
)
from gpuwatch.domain.launches.past_decision import RENTED, PastDecision
from gpuwatch.domain.watches.decide import DecisionReason
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import UsageError
from tests.builders import a_watch

NOW = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)


def test_a_time_of_day_is_the_last_one_that_is_over_in_the_zone() -> None:
    cases = {
        "03:12": datetime(2026, 11, 29, 2, 12, tzinfo=UTC),
        "10:30": datetime(2026, 11, 28, 9, 30, tzinfo=UTC),
        "08:59:30": datetime(2026, 11, 29, 7, 59, 30, tzinfo=UTC),
        "2026-11-28 03:12": datetime(2026, 11, 28, 2, 12, tzinfo=UTC),
        "2026-11-28T03:12:00+00:00": datetime(2026, 11, 28, 3, 12, tzinfo=UTC),
        "2026-10-25 03:30": datetime(2026, 10, 25, 2, 30, tzinfo=UTC),  # winter time again
    }
    assert {case: past_moment(case, NOW, "Europe/Berlin") for case in cases} == cases


@pytest.mark.parametrize(("text", "why"), [("soon", "expected a time such as 03:12"), ("2026-12-24 18:00", "not over")])
def test_what_is_no_moment_of_the_past_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        past_moment(text, NOW, "Europe/Berlin")


def test_it_is_said_in_words_and_by_the_name_that_programs_know() -> None:
    cases = {
        ("max_usd_day", "the daily budget is used up"): ("because the daily budget is used up", "max_usd_day", False),
        ("outside_window", ""): ("outside its hours", "outside_active", False),
        ("no_offer", ""): ("no offer matched", None, False),
        ("no_data", ""): ("could not tell", None, False),
        ("first_match", ""): ("it reported the offer", None, True),
        ("rented", ""): ("it rented", None, True),
        ("approval", "Asked you."): ("it asked you", "approval", True),
    }
    for case, (words, name, acted) in cases.items():
        decision = PastDecision(at=NOW, reason=case[0], text=case[1])
        assert words in decision_words(a_watch(), decision), case
        assert (blocked_by(decision), has_acted(decision)) == (name, acted), case
    asks = a_watch(action=Action.ASK)
    assert "already asked" in decision_words(asks, PastDecision(at=NOW, reason="nothing_new"))


def test_a_time_without_seconds_is_a_whole_minute() -> None:
    begin, end = past_span("2026-11-27 12:00", NOW, "UTC")
    assert (end - begin).total_seconds() == pytest.approx(59.999)
    exact = past_span("2026-11-27T12:00:07+01:00", NOW, "UTC")
    assert exact[0] == exact[1]
    now = begin + timedelta(seconds=20)
    assert past_span("2026-11-27 12:00", now, "UTC") == (begin, now), "this minute is not over"


def test_all_decisions_of_the_minute_are_said() -> None:
    watch, at = a_watch(name="w"), NOW - timedelta(days=1)
    decisions = [
        PastDecision(at=at - timedelta(hours=1), reason=DecisionReason.NO_OFFER),
        PastDecision(at=at + timedelta(seconds=41), reason=RENTED),
    ]
    found = PastWhy(
        watch=watch, at=at, during=decisions, until=None, polled_at=at, next_polled_at=None,
        low_microusd_gpu_hour=None, changes=(),
    )  # fmt: skip
    assert found.sentence.endswith(f"no offer matched at or under its limit; from {at:%H:%M}:41 on: it rented.")
    view = past_why_view(found)
    assert [one.reason for one in view.during] == [DecisionReason.NO_OFFER, RENTED]
    assert view.decision is not None
    assert view.decision.acted
