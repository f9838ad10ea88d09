"""`/jobs`: the queue, what runs, and what ended within a day."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.app.jobs import listed_jobs
from gpuwatch.chat.replies import ChatContext, ChatReply, listing, said
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.queue import in_order
from gpuwatch.domain.market.pricing import MICRO

_SHOWN = 15
_ENDED_SHOWN_FOR = timedelta(days=1)


def jobs(context: ChatContext, argument: str) -> ChatReply:
    """Jobs on an instance first, then the queue in its order, then what ended lately."""
    found = listed_jobs(context.settings)
    running = [one for one in found if not one.is_over and one.state is not JobState.QUEUED]
    since = context.now - _ENDED_SHOWN_FOR
    over = [one for one in reversed(found) if one.is_over and (one.ended_at or since) >= since]
    shown = [*running, *in_order(found), *over]
    if not shown:
        return said("No job is open, and none ended within a day.")
    items = [(one.name, f": {_line(one)}") for one in shown[:_SHOWN]]
    if len(shown) > _SHOWN:
        items.append(("More", f": {len(shown) - _SHOWN}, see gpuwatch job list"))
    return listing(f"{len(shown)} {'job' if len(shown) == 1 else 'jobs'}", items)


def _line(one: Job) -> str:
    done = "" if one.progress is None else f", {100 * one.progress:.0f} % done"
    cost = f", ${one.spent_microusd / MICRO:.2f}" if one.spent_microusd else ""
    why = f": {one.reason}" if one.reason else ""
    return f"{one.state.value}{done}{cost}{why}"
