"""Recurring jobs on the page and over HTTP: listed with their next run, ended after a question, once."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.app.alerts.alerts import event_filter, stored_events
from gpuwatch.app.jobs.jobs import submit_jobs
from tests.web.served import PAGE, TOKEN, served

JOB = 'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_usd = 1 }\nschedule = "0 2 * * 6"\nwithin = "6h"\n'
TOKENS = f'tokens = [{{ name = "m", token = "{TOKEN}-manage", scopes = ["read", "manage"] }}]'


def test_it_is_listed_with_its_next_run_and_ended_after_a_question(tmp_path: Path) -> None:
    with served(tmp_path, TOKENS) as web:
        (tmp_path / "nightly.toml").write_text(JOB)
        submit_jobs(web.context.settings, [tmp_path / "nightly.toml"])
        headers = {"Authorization": f"Bearer {TOKEN}-manage"}
        (one,) = web.client.get("/api/v1/series", headers=headers).json()["items"]
        assert (one["name"], one["schedule"]) == ("nightly", "0 2 * * 6")
        token = web.log_in(token=f"{TOKEN}-manage")
        page = web.client.get("/jobs", headers=PAGE).text
        assert "0 2 * * 6" in page
        assert "/jobs/series/nightly/end" in page
        form = {"csrf_token": token}
        sheet = web.client.get("/pause?watch=job%3Anightly", headers=PAGE).text
        assert "It holds for all runs of this recurring job." in sheet
        said = form | {"watch": "job:nightly"}
        paused = web.client.post("/pause", data=said, headers=PAGE, follow_redirects=True)
        assert (paused.url.path, "Job nightly is paused." in paused.text) == ("/jobs", True)
        assert "· Paused" in paused.text
        web.client.post("/resume", data=said, headers=PAGE)
        asked = web.client.post("/jobs/series/nightly/end", data=form, headers=PAGE, follow_redirects=True).text
        assert "End the recurring job nightly?" in asked
        confirmed = form | {"confirmed": "yes"}
        done = web.client.post("/jobs/series/nightly/end", data=confirmed, headers=PAGE, follow_redirects=True).text
        assert "It starts no more runs." in done
        again = web.client.post("/api/v1/series/nightly/end", headers=headers)
        assert (again.status_code, again.json()["changed"]) == (200, False)
        assert web.client.post("/api/v1/series/other/end", headers=headers).status_code == 404
        events = stored_events(web.context.settings, event_filter(3600.0, ["audit"], "info"))
        assert [event.alert.headline for event in events] == [
            *("job nightly paused", "job nightly resumed"), "recurring job nightly ended",
        ]  # fmt: skip
