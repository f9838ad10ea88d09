"""Notices of providers: what counts as one, which of two stays, and what follows for a launch."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.alerts import interruption_texts as texts
from gpuwatch.domain.launches.instance import InstanceState
from gpuwatch.domain.launches.instances.absence import AbsenceVerdict
from gpuwatch.domain.launches.interruption import (
    InterruptionKind,
    InterruptionNotice,
    news_of,
    parse_notice,
    time_left,
)
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.life.launch_events import (
    InstanceListed,
    InstanceUnlisted,
    InterruptionNoticed,
    WatchTerms,
)
from gpuwatch.domain.launches.life.state_machine import transition
from tests.builders import NOON, changed
from tests.domain.launches.life.test_state_machine import after, alive, at, instance

TERMINATE = InterruptionNotice(kind=InterruptionKind.TERMINATE, at=NOON + timedelta(minutes=3))
RISK = InterruptionNotice(kind=InterruptionKind.REBALANCE)
SPOT = alive(LaunchState.RUNNING, spot=True)


@pytest.mark.parametrize(
    ("kind", "moment", "found"),
    [
        ("terminate", "2026-11-20T12:03:00Z", NOON.replace(minute=3)),
        ("stop", "2026-11-20T14:03:00+02:00", NOON.replace(minute=3)),
        ("terminate", "2026-11-20T12:03:00", None),  # without a zone it is no moment
        ("terminate", "9" * 5000, None),
        ("terminate", "0001-01-01T00:00:00+23:59", None),
        ("terminate", "", None),
        ("rebalance", "2026-11-20T12:03:00Z", None),
    ],
)
def test_a_time_that_makes_no_sense_is_left_out(kind: str, moment: str, found: datetime | None) -> None:
    notice = parse_notice(kind, moment.replace("2026-11-20", f"{NOON:%Y-%m-%d}"))
    assert notice is not None
    assert (notice.kind.value, notice.at) == (kind, found)


@given(st.text(max_size=300), st.text(max_size=300))
def test_other_text_is_no_notice(kind: str, moment: str) -> None:
    found = parse_notice(kind, moment)
    assert found is None or kind in {one.value for one in InterruptionKind}


@given(st.timedeltas(timedelta(days=-900), timedelta(days=900)))
def test_a_time_in_the_past_or_far_ahead_becomes_soon(ahead: timedelta) -> None:
    news = news_of(InterruptionNotice(kind=InterruptionKind.STOP, at=NOON + ahead), None, NOON)
    assert news is not None
    is_credible = timedelta(minutes=-5) <= ahead <= timedelta(hours=1)
    assert (news.at, news.noticed_at) == (NOON + ahead if is_credible else None, NOON)
    assert (time_left(news, NOON) is None) == (not is_credible or ahead <= timedelta(0))


def test_an_announced_end_replaces_a_risk_and_stays() -> None:
    assert news_of(TERMINATE, RISK, NOON) is not None
    for new, known in (
        (RISK, RISK),
        (RISK, TERMINATE),
        (TERMINATE, TERMINATE),
        (changed(TERMINATE, at=None), TERMINATE),
    ):
        assert news_of(new, known, NOON) is None


# --- the launch -------------------------------------------------------------------------------------------------------
def test_a_notice_is_stored_and_reported_once_whoever_reads_it() -> None:
    listed = InstanceListed(instance(spot=True, interruption=TERMINATE))
    outcome = transition(SPOT, listed, at())
    assert outcome.transition is not None
    assert outcome.transition.notify is not None
    assert outcome.transition.notify.spec is texts.TAKEN_BACK
    assert outcome.transition.notify.fields["left"] == "in 2 min"
    known = after(SPOT, outcome)
    assert known.interruption == changed(TERMINATE, noticed_at=at().now)
    for event in (listed, InterruptionNoticed(changed(TERMINATE, at=None)), InterruptionNoticed(RISK)):
        assert transition(known, event, at(70)).transition is None


@pytest.mark.parametrize(
    ("watch", "terms", "follows"),
    [
        ("h100", WatchTerms(), texts.NEXT_OVER),
        ("h100", WatchTerms(relaunch=True), texts.NEXT_ELSEWHERE),
        ("job:train", WatchTerms(), texts.NEXT_JOB),
    ],
)
def test_the_alert_says_what_follows(watch: str, terms: WatchTerms, follows: str) -> None:
    outcome = transition(changed(SPOT, watch=watch), InterruptionNoticed(TERMINATE), at(), terms)
    assert outcome.transition is not None
    assert outcome.transition.notify is not None
    assert outcome.transition.notify.fields["follows"] == follows


def test_a_price_that_changes_in_the_same_list_hides_no_notice() -> None:
    listed = InstanceListed(instance(spot=True, listed_usd_hour=2.7, interruption=TERMINATE))
    launch = SPOT
    for _ in range(2):
        launch = after(launch, transition(launch, listed, at()))
    assert launch.listed_microusd_hour == 2_700_000
    assert launch.interruption is not None


def test_what_was_announced_is_why_it_ended() -> None:
    known = changed(SPOT, interruption=TERMINATE)
    failed = transition(known, InstanceListed(instance(InstanceState.FAILED, spot=True)), at())
    gone = transition(known, InstanceUnlisted(AbsenceVerdict.ABSENT), at())
    at_risk = transition(changed(SPOT, interruption=RISK), InstanceUnlisted(AbsenceVerdict.ABSENT), at())
    said = [one.transition.cause for one in (failed, gone, at_risk) if one.transition is not None]
    assert said == ["taken back by its provider", "taken back by its provider", "gone at the provider"]
    assert after(known, failed).state is LaunchState.STOPPING
