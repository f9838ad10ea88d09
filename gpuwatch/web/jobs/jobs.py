"""Jobs: the queue, running jobs, and recently ended ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.jobs.jobs import listed_jobs
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.jobs.queue import queue_order
from gpuwatch.web.page import Page, View

_JOBS_SHOWN = 200


def _show_jobs(view: View) -> Mapping[str, Any]:
    jobs = listed_jobs(view.settings)
    queued = queue_order(jobs)
    return {
        "running": [job for job in jobs if not job.is_over and job.state is not JobState.QUEUED],
        "queued": queued[:_JOBS_SHOWN],
        "over": [job for job in reversed(jobs) if job.is_over][:_JOBS_SHOWN],
        "left_out": max(0, len(queued) - _JOBS_SHOWN),
    }


# not in the navigation: the page of the launches links here
JOBS_PAGE = Page(name="Jobs", path="/jobs", template="jobs.html", show=_show_jobs, order=32, in_nav=False)
