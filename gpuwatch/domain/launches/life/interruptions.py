"""What follows from a provider's notice that it takes a spot machine back: it is stored and reported, once. Pure.

The launch goes on as it is: when the machine is gone, a list or its absence ends it.
"""

from __future__ import annotations

from typing import Any

from gpuwatch.domain.alerts import interruption_texts as texts
from gpuwatch.domain.launches.interruption import InterruptionKind, InterruptionNotice, news_of, time_left
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.launch_events import (
    NO_TRANSITION,
    ClockReading,
    InterruptionNoticed,
    Notification,
    Transition,
    TransitionResult,
    WatchTerms,
)
from gpuwatch.domain.setup.durations import format_moment

_ALIVE = frozenset({LaunchState.STARTING, LaunchState.RUNNING})


def noticed(launch: Launch, event: InterruptionNoticed, clock: ClockReading, terms: WatchTerms) -> TransitionResult:
    """The machine itself reads the notice."""
    return with_notice(launch, event.notice, NO_TRANSITION, clock, terms)


def with_notice(
    launch: Launch, notice: InterruptionNotice | None, found: TransitionResult, clock: ClockReading, terms: WatchTerms
) -> TransitionResult:
    """Store a notice and report it, unless something else is stored now: the next list shows it again."""
    if notice is None or found.transition is not None or launch.state not in _ALIVE or launch.is_halted:
        return found
    news = news_of(notice, launch.interruption, clock.now)
    if news is None:
        return found
    step = Transition(
        to_state=launch.state,
        cause=f"its provider announces an interruption: {news.kind.value}",
        changes={"interruption": news},
        notify=_notification(launch, news, clock, terms),
    )
    return TransitionResult(step, found.effects)


def _notification(launch: Launch, news: InterruptionNotice, clock: ClockReading, terms: WatchTerms) -> Notification:
    fields: dict[str, Any] = {"notice": news.kind.value}
    if news.kind is InterruptionKind.REBALANCE:
        return Notification(texts.AT_RISK, fields)
    of_job = launch.purpose.job is not None
    follows = texts.NEXT_JOB if of_job else texts.NEXT_ELSEWHERE if terms.relaunch else texts.NEXT_OVER
    fields |= {
        "left": time_left(news, clock.now) or texts.SOON,
        "at": None if news.at is None else format_moment(news.at),
        "what": texts.WHAT[news.kind.value],
        "follows": follows,
    }
    return Notification(texts.TAKEN_FROM_JOB if of_job else texts.TAKEN_BACK, fields)
