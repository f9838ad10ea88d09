"""An owner's actions on a live daemon, in one browser on a phone: each is followed to the store and the marketplace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuwatch.app.jobs.jobs import listed_jobs
from gpuwatch.app.launches.launches import all_launches
from gpuwatch.app.setup.demo_jobs import missing_for_jobs
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.launches.launch import Launch
from tests.process.daemon_child import wait_for
from tests.web.chromium import PHONE, needs_browser, page_at, started
from tests.web.story import PLANNED, Story, story

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [needs_browser, pytest.mark.slow]
_WITHIN_S = 120.0


@pytest.mark.skipif(missing_for_jobs() is not None, reason=str(missing_for_jobs()))
def test_extend_edit_cancel_retry_and_a_plan_that_becomes_a_job(tmp_path: Path) -> None:
    with story(tmp_path) as running, started() as browser, page_at(browser, running.url, PHONE) as page:
        page.request.post(f"{running.url}/api/v1/session", data={"code": running.codes[-1]})
        extend(page, running)
        edit(page, tmp_path)
        cancel_and_retry(page, running)
        plan_a_job(page, running)


def extend(page: Page, running: Story) -> None:
    before = _launch(running).max_runtime_s
    page.goto("/")
    page.get_by_role("button", name="Extend… 1× H100 SXM").click()
    sheet = page.get_by_role("dialog")
    sheet.get_by_text("+2").click()
    sheet.get_by_role("button", name="Extend it").click()
    page.get_by_role("main").get_by_text("more.").wait_for()
    assert _launch(running).max_runtime_s == (before or 0) + 7200


def edit(page: Page, folder: Path) -> None:
    """The limit on the first page leads to its form; what it would have rented follows by itself."""
    page.goto("/")
    page.get_by_role("link", name="change the limit of h100-night").click()
    page.locator('[name="f.max_price"]').fill("1.60")
    page.get_by_text("It would have").wait_for()
    page.get_by_role("button", name="Save…").click()
    page.get_by_role("button", name="Save it").click()
    page.wait_for_url("**/watches")
    assert "max_price = 1.60" in (folder / "gpuwatch.toml").read_text()


def cancel_and_retry(page: Page, running: Story) -> None:
    machines = len(running.market.instances())
    page.goto(f"/jobs/{running.job_id}")
    page.get_by_text(re.compile(r"of 2,000 steps")).wait_for()
    page.get_by_role("button", name="Cancel job…").click()
    page.get_by_role("button", name="Cancel the job").click()
    page.get_by_text("It is cancelled").wait_for()
    wait_for(lambda: _state(running, "llama-ft") is JobState.CANCELLED, _WITHIN_S)
    wait_for(lambda: len(running.market.instances()) < machines, _WITHIN_S)
    page.goto(f"/jobs/{running.job_id}")
    page.get_by_role("button", name="Retry…").click()
    page.get_by_role("button", name="Retry it").click()
    page.get_by_text("It is queued again").wait_for()
    wait_for(lambda: _state(running, "llama-ft") is not JobState.CANCELLED, _WITHIN_S)


def plan_a_job(page: Page, running: Story) -> None:
    page.goto(PLANNED)
    page.get_by_label("Name", exact=True).fill("from-a-plan")
    page.get_by_label("Command").fill("python train.py")
    page.get_by_text("Deadline, checkpoint, results").click()
    page.get_by_label("Deadline").fill("2099-01-01T08:00")
    page.get_by_label("Results").fill("out/*")
    page.get_by_text("Queue it at once").click()
    page.get_by_role("button", name="Make a job of it…").click()
    page.get_by_role("button", name="Queue it").click()
    page.wait_for_url("**/jobs/from-a-plan")
    page.get_by_role("heading", name="from-a-plan").wait_for()
    job = next(one for one in listed_jobs(running.settings) if one.name == "from-a-plan")
    assert job.deadline is not None
    assert (job.deadline.year, [one.source for one in job.definition.results]) == (2099, ["out/*"])


def _launch(running: Story) -> Launch:
    return next(one for one in all_launches(running.settings) if one.launch_id == running.launch_id)


def _state(running: Story, name: str) -> JobState:
    return next(one.state for one in listed_jobs(running.settings, all_jobs=True) if one.name == name)
