"""One job: what it is, its events as a timeline, its runs, the end of its log, its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.job_output import job_log
from gpuwatch.app.jobs import job_details
from gpuwatch.web.page import Page, View

_LOG_LINES = 200


def _show(view: View) -> Mapping[str, Any]:
    found = job_details(view.settings, view.path["id"])
    log = job_log(view.settings, found.job.job_id, None, _LOG_LINES)
    return {
        "job": found.job,
        "events": found.events,
        "runs": found.runs,
        "log": log.lines,
        "results": [(run.run_number, one) for run in found.runs for one in run.results],
    }


PAGE = Page(name="Job", path="/jobs/{id}", template="job.html", show=_show, order=33, in_nav=False)
