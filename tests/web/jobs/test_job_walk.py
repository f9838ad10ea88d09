"""A job's page on a phone, in a real browser: charts, a live log, cancel and retry with confirmation."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.app.jobs.jobs import job_details
from gpuwatch.domain.jobs.job import JobState
from tests.process.daemon_child import wait_for
from tests.stored_jobs import a_running_job
from tests.web.chromium import PHONE, needs_browser, overflow, page_at, serious_findings, started
from tests.web.served import served, serving_settings, settings_in

pytestmark = [needs_browser, pytest.mark.slow]
# every drawn chart, to query its axes
_CHARTS = """
let library, drawn = window.drawn = [];
Object.defineProperty(window, "uPlot", { get: () => library, set: (one) => { library = new Proxy(one, {
  construct: (of, given) => { const chart = new of(...given); drawn.push(chart); return chart; } }); } });
"""


def test_a_running_job_is_followed_cancelled_and_retried(tmp_path: Path) -> None:
    with served(tmp_path) as web, started() as browser, page_at(browser, web.url, PHONE) as page:
        settings = web.context.settings
        job = a_running_job(settings, tmp_path, log="".join(f"step {number}/100\n" for number in range(400)))
        page.add_init_script(_CHARTS)
        page.goto(f"/jobs/{job.job_id}")
        main = page.get_by_role("main")
        for text in ("12,000 tokens/s", "25", "step 399/100"):
            main.get_by_text(text).first.wait_for()
        wait_for(lambda: page.evaluate("drawn.length") >= 3)
        assert overflow(page) == 0
        assert serious_findings(page) == []
        assert page.get_by_role("button", name="Cancel job…").count() == 0
        log = tmp_path / "jobs-data" / job.job_id / "runs/1/log"
        with log.open("a") as file:
            file.write("a new <b>line</b>\n")
        main.get_by_text("a new <b>line</b>").wait_for()

        page.goto("/login")
        page.get_by_label("One-time code").fill(web.codes[-1])
        main.get_by_role("button", name="Log in").click()
        page.wait_for_url(lambda url: "/login" not in url)
        page.goto(f"/jobs/{job.job_id}")
        page.get_by_role("button", name="Cancel job…").click()
        sheet = page.get_by_role("dialog")
        sheet.get_by_text("Cancel job train?").wait_for()
        sheet.get_by_text("The work since its checkpoint of").wait_for()
        assert overflow(page) == 0
        sheet.get_by_role("button", name="Cancel the job").click()
        main.get_by_text("It is cancelled; its machine").wait_for()
        assert job_details(settings, job.job_id).job.state is JobState.CANCELLED
        page.get_by_role("button", name="Retry…").click()
        sheet.get_by_text("Queue job train again? It may rent a machine.").wait_for()
        sheet.get_by_role("button", name="Retry it").click()
        main.get_by_text("It is queued again").wait_for()
        wait_for(lambda: job_details(settings, job.job_id).job.state is JobState.QUEUED)


def test_a_chart_of_two_samples_has_an_axis_of_that_hour(tmp_path: Path) -> None:
    with served(tmp_path) as web, started() as browser, page_at(browser, web.url, PHONE) as page:
        job = a_running_job(web.context.settings, tmp_path, samples=2)
        page.add_init_script(_CHARTS)
        page.goto(f"/jobs/{job.job_id}")
        wait_for(lambda: page.evaluate("drawn.length >= 3 && drawn[0].scales.x.min !== null"))
        shown_s = page.evaluate("drawn[0].scales.x.max - drawn[0].scales.x.min")
        assert 0 < shown_s <= 7200


def test_charts_are_in_the_zone_of_the_page_and_a_share_ends_at_100(tmp_path: Path) -> None:
    zone = "Asia/Kathmandu"  # 5:45 h ahead of UTC, and never that of the browser below
    settings = settings_in(tmp_path, f'timezone = "{zone}"\n[web]\nlisten = "127.0.0.1:0"\n')
    with (
        serving_settings(settings, tmp_path) as web,
        started() as browser,
        page_at(browser, web.url, timezone_id="America/New_York") as page,
    ):
        job = a_running_job(web.context.settings, tmp_path)
        page.add_init_script(_CHARTS)
        page.goto(f"/jobs/{job.job_id}")
        wait_for(lambda: page.evaluate("drawn.length >= 3 && !!drawn[0].axes[0]._values"))
        splits, labels = page.evaluate("[drawn[0].axes[0]._splits, drawn[0].axes[0]._values]")
        for at_s, label in zip(splits, labels, strict=True):
            assert label in {f"{datetime.fromtimestamp(at_s, ZoneInfo(zone)):%H:%M}", label.split(":")[0]}
        use = page.evaluate("drawn[drawn.length - 1].scales.y")
        assert (use["min"], use["max"]) == (0, 100)
