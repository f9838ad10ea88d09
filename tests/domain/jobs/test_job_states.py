"""The states of a job and their transitions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.jobs.job import (
    ALLOWED_JOB_TRANSITIONS,
    OVER,
    JobState,
    JobTransition,
    JobTransitionRefused,
    apply_transition,
)
from tests.builders import NOON
from tests.builders_jobs import a_job

S = JobState
WAY = (S.QUEUED, S.RENTING, S.PREPARING, S.RUNNING, S.FETCHING, S.DONE)


def test_the_way_of_a_job_sets_its_times() -> None:
    job = a_job()
    for minutes, state in enumerate(WAY[1:], 1):
        job, _ = apply_transition(job, JobTransition(to_state=state, at=NOON + timedelta(minutes=minutes)))
    assert job.started_at == NOON + timedelta(minutes=3)
    assert job.ended_at == NOON + timedelta(minutes=5)
    assert job.version == 5


def test_a_done_job_stays_done() -> None:
    assert ALLOWED_JOB_TRANSITIONS[S.DONE] == frozenset()
    with pytest.raises(JobTransitionRefused, match="job 'train' is done; it cannot become queued"):
        apply_transition(a_job(state=S.DONE), JobTransition(to_state=S.QUEUED, at=NOON))


def test_only_what_was_fetched_is_done() -> None:
    assert [one for one, after in ALLOWED_JOB_TRANSITIONS.items() if S.DONE in after] == [S.FETCHING]


def test_the_event_says_where_it_came_from_and_why() -> None:
    _, event = apply_transition(a_job(), JobTransition(to_state=S.FAILED, at=NOON, reason="its deadline has passed"))
    assert (event.kind, event.detail) == ("failed", {"from": "queued", "reason": "its deadline has passed"})


@given(st.lists(st.sampled_from(list(JobState)), max_size=12))
def test_whatever_happens_only_ended_jobs_have_an_end(states: list[JobState]) -> None:
    job = a_job()
    for state in states:
        if state in ALLOWED_JOB_TRANSITIONS[job.state]:
            job, _ = apply_transition(job, JobTransition(to_state=state, at=NOON))
        assert (job.ended_at is not None) == (job.state in OVER) == job.is_over
