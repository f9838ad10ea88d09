"""The actions of a job's page: cancel and retry, its growing log, results as files; with the running server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import msgspec
import pytest

from gpuwatch.app.alerts.alerts import event_filter, stored_events
from gpuwatch.app.jobs.jobs import details_view, job_details
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.market.offer import clean
from gpuwatch.web.jobs.job_charts import job_charts
from tests.stored_jobs import a_running_job, a_sample, moved, with_run
from tests.web.served import PAGE, TOKEN, Served, page, served

TOKENS = (
    f'tokens = [{{ name = "r", token = "{TOKEN}-read", scopes = ["read"] }},'
    f' {{ name = "m", token = "{TOKEN}-manage", scopes = ["read", "manage"] }}]'
)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found


@pytest.fixture
def job(web: Served) -> Job:
    return a_running_job(web.context.settings, web.folder)


def state_of(web: Served, job: Job) -> JobState:
    return job_details(web.context.settings, job.job_id).job.state


def audit(web: Served) -> list[str]:
    return [
        event.alert.headline for event in stored_events(web.context.settings, event_filter(3600.0, ["audit"], "info"))
    ]


def press(web: Served, job: Job, what: str, token: str, **fields: str) -> httpx.Response:
    form = {"csrf_token": token, **fields}
    return web.client.post(f"/jobs/{job.job_id}/{what}", data=form, headers=PAGE, follow_redirects=True)


def test_a_job_is_paused_from_its_page_and_says_so_everywhere(web: Served, job: Job) -> None:
    at, link = f"/jobs/{job.job_id}", 'href="/pause?watch=job%3Atrain"'
    assert link not in page(web, at), "not before one has logged in"
    token = web.log_in()
    assert link in page(web, at)
    form = page(web, "/pause?watch=job%3Atrain")
    assert "Pause job train?" in form
    assert "recurring" not in form
    said = {"csrf_token": token, "watch": "job:train"}
    paused = web.client.post("/pause", data=said | {"for": "8", "why": "budget"}, headers=PAGE, follow_redirects=True)
    assert paused.url.path == "/jobs/train"
    assert "Job train is paused." in paused.text
    assert "Renting for it is paused until" in paused.text
    assert "Resume…" in paused.text
    assert "“budget”" in page(web, "/pause?watch=job%3Atrain")
    details = details_view(job_details(web.context.settings, "train"))
    assert str(details.paused).startswith("Renting for job 'train' is paused until")
    resumed = web.client.post("/resume", data=said, headers=PAGE, follow_redirects=True)
    assert "Job train is resumed." in resumed.text
    assert "Pause…" in resumed.text
    assert audit(web) == ["job train paused: budget", "job train resumed"]
    assert web.client.get("/pause?watch=job%3Aother", headers=PAGE).status_code == 404


def test_cancel_asks_with_the_money_in_it_then_ends_the_job_once(web: Served, job: Job) -> None:
    refused = web.client.post(f"/jobs/{job.job_id}/cancel", headers=PAGE)
    assert (refused.status_code, state_of(web, job)) == (401, JobState.RUNNING)
    token = web.log_in()
    assert press(web, job, "cancel", "wrong").status_code == 403
    asked = press(web, job, "cancel", token)
    texts = (
        "Cancel job train?",
        "$1.08",
        "$10.00 in all",
        "The work since its checkpoint of",
        "It is ended, with the data",
    )
    assert all(text in asked.text for text in texts)
    assert state_of(web, job) is JobState.RUNNING
    assert "It is cancelled" in press(web, job, "cancel", token, confirmed="yes").text
    assert state_of(web, job) is JobState.CANCELLED
    assert "nothing changed" in press(web, job, "cancel", token, confirmed="yes").text
    (line,) = audit(web)
    assert "job train cancelled" in line


def test_retry_asks_and_does_nothing_about_a_job_that_has_changed_since(web: Served, job: Job) -> None:
    settings = web.context.settings
    failed = moved(settings, job, (JobState.FAILED,), real_now(), exit_code=3)
    token = web.log_in()
    page = web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text
    version = re.search(r'name="version" value="(\d+)"', page)
    assert version is not None
    assert "Cancel job…" not in page
    asked = press(web, job, "retry", token, version=version[1])
    assert "It may rent a machine." in asked.text
    assert f'name="version" value="{failed.version}"' in asked.text
    assert "It is queued again" in press(web, job, "retry", token, version=version[1], confirmed="yes").text
    assert state_of(web, job) is JobState.QUEUED
    # it fails again; the still open question was about the first failure
    again = moved(settings, job_details(settings, job.job_id).job, (JobState.FAILED,), real_now())
    stale = press(web, job, "retry", token, version=version[1], confirmed="yes")
    assert "has changed in the meantime" in stale.text
    for wrong in ("", "-1", "x", "9" * 30):
        press(web, job, "retry", token, version=wrong, confirmed="yes")
    assert (state_of(web, job), again.version) == (JobState.FAILED, job_details(settings, job.job_id).job.version)
    assert len(audit(web)) == 1


def test_the_api_cancels_and_retries_once_each_and_needs_the_scope(tmp_path: Path) -> None:
    with served(tmp_path, TOKENS) as web:
        job = a_running_job(web.context.settings, tmp_path)
        may = {"Authorization": f"Bearer {TOKEN}-manage"}
        here = f"/api/v1/jobs/{job.job_id}"

        def post(what: str, path: str = here) -> tuple[int, object, object]:
            answer = web.client.post(f"{path}/{what}", headers=may)
            return answer.status_code, answer.json().get("changed"), answer.json().get("state")

        assert web.client.post(f"{here}/cancel").status_code == 401
        assert web.client.post(f"{here}/cancel", headers={"Authorization": f"Bearer {TOKEN}-read"}).status_code == 403
        assert post("retry") == (200, False, "running")
        assert [post("cancel"), post("cancel")] == [(200, True, "cancelled"), (200, False, "cancelled")]
        assert [post("retry"), post("retry")] == [(200, True, "queued"), (200, False, "queued")]
        assert post("retry", "/api/v1/jobs/nope")[0] == post("cancel", "/api/v1/jobs/nope")[0] == 404
        found = job_details(web.context.settings, job.job_id).job
        moved(web.context.settings, found, (JobState.RENTING, JobState.PREPARING), real_now(), run_number=2)
        found = job_details(web.context.settings, job.job_id).job
        moved(web.context.settings, found, (JobState.FETCHING, JobState.DONE), real_now())
        assert (post("cancel")[0], post("retry")[0]) == (409, 409)
        said = audit(web)
        assert (len(said), "job train cancelled" in said[0], "job train retried" in said[1]) == (2, True, True)


def test_the_log_comes_in_pieces_of_whole_lines_from_one_run_to_the_next(web: Served, job: Job) -> None:
    path = web.folder / "jobs-data" / job.job_id / "runs/1/log"
    path.write_bytes(b"one <b>\nt\x1b[31mwo\nthr")
    two = clean("t\x1b[31mwo")
    assert "\x1b" not in two
    here = f"/jobs/{job.job_id}/log"
    first = web.client.get(here).json()
    assert (first["lines"], first["run_number"], first["is_over"]) == (["one <b>", two], 1, False)
    assert web.client.get(here, params={"run": 1, "begin": first["end"]}).json()["lines"] == []
    path.write_bytes(path.read_bytes() + "ee €\n".encode())
    then = web.client.get(here, params={"run": 1, "begin": first["end"]}).json()
    assert (then["lines"], then["next_run"]) == (["three €"], None)
    path.write_bytes(path.read_bytes() + b"last")
    moved(web.context.settings, job, (JobState.PREEMPTED,), real_now(), run_number=2)
    rest = web.client.get(here, params={"run": 1, "begin": then["end"]}).json()
    assert (rest["lines"], rest["next_run"]) == (["last"], 2)
    assert web.client.get(here, params={"run": 2, "begin": 0}).json()["lines"] == []
    for query, status in (("run=7", 422), ("run=-1", 422), ("begin=x", 422), ("begin=" + "9" * 40, 422)):
        assert web.client.get(f"{here}?{query}").status_code == status, query
    assert web.client.get(here, params={"run": 1, "begin": 10**12}).json()["lines"] == []
    whole = web.client.get(f"/jobs/{job.job_id}/runs/1/log")
    assert whole.content == path.read_bytes()
    assert whole.headers["content-disposition"] == 'attachment; filename="train-run1.log"'
    assert whole.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert "content-length" not in whole.headers  # it may grow while it is sent
    assert web.client.get(f"/jobs/{job.job_id}/runs/2/log").status_code == 404


def test_a_huge_log_is_bounded(web: Served, job: Job) -> None:
    path = web.folder / "jobs-data" / job.job_id / "runs/1/log"
    path.write_bytes(b"x" * 300_000 + b"\n" + b"short\n" * 50_000)
    assert len(web.client.get(f"/jobs/{job.job_id}/log").content) < 200_000
    assert len(web.client.get(f"/jobs/{job.job_id}", headers=PAGE).content) < 200_000
    ends, at = [], 0
    while at < 300_001:
        at = web.client.get(f"/jobs/{job.job_id}/log", params={"run": 1, "begin": at}).json()["end"]
        ends.append(at)
    assert len(ends) == len(set(ends)) <= 6


HOSTILE = ("out/<i>a</i>.bin", "out/a b?c#d%2e.txt", "out/\N{GREEK SMALL LETTER ALPHA}.html", "out/plain.bin")


def test_results_are_given_out_as_files_and_nothing_else_is(web: Served, job: Job) -> None:
    fetched = web.folder / "jobs-data" / job.job_id / "runs/1/fetched"
    for number, name in enumerate(HOSTILE):
        (fetched / name).parent.mkdir(parents=True, exist_ok=True)
        (fetched / name).write_bytes(b"<script>%d" % number)
    (fetched / "out/unlisted").write_text("no")
    secret = web.folder / "secret"
    secret.write_text("a secret")
    (fetched / "out/link").symlink_to(secret)
    (fetched / "folder").symlink_to(web.folder)
    listed = (*HOSTILE, "out/link", "folder/secret", "out/gone", "../../../../../secret")
    rows = tuple({"path": one, "bytes": 9 if one in HOSTILE else 8, "sha256": "ab"} for one in listed)
    (run,) = job_details(web.context.settings, job.job_id).runs
    with_run(web.context.settings, msgspec.structs.replace(run, results=rows))
    page = web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text
    assert "<i>a" not in page
    for number, name in enumerate(HOSTILE):
        link = f"/jobs/{job.job_id}/runs/1/results/{quote(name)}"
        assert link in page
        answer = web.client.get(link)
        assert (answer.status_code, answer.content) == (200, b"<script>%d" % number), name
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
    refused = ("out/unlisted", "out/link", "folder/secret", "out/gone", "", "..%2f..%2f..%2f..%2f..%2fsecret", "out")
    for name in refused:
        answer = web.client.get(f"/jobs/{job.job_id}/runs/1/results/{name}")
        assert (answer.status_code, b"a secret" in answer.content) == (404, False), name
    assert web.client.get(f"/jobs/{job.job_id}/runs/2/results/{HOSTILE[3]}").status_code == 404
    assert web.client.get(f"/jobs/{job.job_id}/runs/x/results/{HOSTILE[3]}").status_code == 404
    os.truncate(fetched / HOSTILE[3], 3)  # different from the verified content
    assert web.client.get(f"/jobs/{job.job_id}/runs/1/results/{HOSTILE[3]}").status_code == 404


def test_charts_are_thin_and_have_a_gap_between_runs() -> None:
    begin = real_now()
    many = [a_sample(begin + timedelta(minutes=number), 0.1, number) for number in range(5000)]
    found = job_charts(many)
    assert [one["name"] for one in found] == ["Loss", "Speed", "GPU use"]
    assert len(found[0]["data"]["x"]) <= 400
    assert found[0]["data"]["sync"] == found[2]["data"]["sync"]
    assert found[0]["data"]["series"][0]["values"][-1] == 4999
    two = [many[0], a_sample(begin + timedelta(minutes=9), 0.1, run_number=2, gpu_percent=None, tokens_per_s=None)]
    (loss, *_) = job_charts(two)
    assert loss["data"]["series"][0]["values"] == [0, None, 1.0]
    assert job_charts([]) == []
    assert job_charts(two[1:]) == [], "one point makes no line"
    assert [chart["name"] for chart in job_charts([two[1], two[1]])] == ["Loss"]
