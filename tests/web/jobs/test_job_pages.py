"""The pages of jobs: the queue, a job's timeline, log and results; a host's output stays text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuwatch.app.jobs.job_plan import job_plan_json, plan_jobs
from gpuwatch.app.jobs.jobs import details_view, job_details, submit_jobs
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.jobs.job import JobRun, JobState, JobTransition
from gpuwatch.domain.jobs.job_definition import after_preparation
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import open_database
from tests.builders import NOON
from tests.storage.stored_answers import an_answer, an_offer
from tests.stored_jobs import a_running_job, moved
from tests.web.served import PAGE, served

JOB = 'command = "python train.py"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\n'


def test_a_preparation_forecasts_its_data_and_not_the_job(tmp_path: Path) -> None:
    more = '[prepare]\ncommand = "true"\nlimit = { max_price = 0.1 }\n'
    with served(tmp_path) as web:
        job = a_running_job(web.context.settings, tmp_path, more=more)
        page = web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text
    assert "Its data is ready around" in page
    assert "Its data is expected to be ready" in page
    assert "It will cost about" not in page


def test_the_queue_and_a_job_are_shown_and_markup_of_a_host_is_text(tmp_path: Path) -> None:
    with served(tmp_path) as web:
        assert "No jobs." in web.client.get("/jobs", headers=PAGE).text
        (tmp_path / "train.toml").write_text(JOB)
        (tmp_path / "next.toml").write_text(JOB)
        first, _ = submit_jobs(web.context.settings, [tmp_path / "train.toml", tmp_path / "next.toml"]).jobs
        store = open_database(f"sqlite:///{tmp_path}/gpuwatch.db")
        repository = SqlJobRepository(store)
        job = repository.record(first, JobTransition(to_state=JobState.RENTING, at=NOON))
        changes = {"run_number": 1, "progress": 0.25}
        repository.record(job, JobTransition(to_state=JobState.PREPARING, at=NOON, reason="<b>x</b>", changes=changes))
        results = ({"path": "out/<i>a</i>.bin", "bytes": 7, "sha256": "ab"},)
        repository.save_run(JobRun(job_id=job.job_id, run_number=1, launch_id="k" * 12, results=results))
        store.close()
        log = tmp_path / "jobs-data" / job.job_id / "runs" / "1" / "log"
        log.parent.mkdir(parents=True)
        log.write_text("loss 0.5 <script>alert(1)</script>\n")
        queue = web.client.get("/jobs", headers=PAGE).text
        assert 'href="/jobs/' in queue
        assert "next" in queue
        page = web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text
        for text in (
            "Its machine runs; its files are being copied there.",
            "25\N{NO-BREAK SPACE}%",
            "python train.py",
            "loss 0.5 &lt;script&gt;",
            "&lt;b&gt;x",
            "&lt;i&gt;a",
        ):
            assert text in page, text
        assert "<script>alert" not in page
        assert web.client.get("/jobs/nope", headers=PAGE).status_code == 404
        items = web.client.get("/api/v1/jobs").json()["items"]
        assert [item["name"] for item in items] == ["next", "train"]


def test_a_job_with_spot_first_shows_both_costs_while_it_waits(tmp_path: Path) -> None:
    """Six hours; the page, the command's JSON and `jobs plan` read the same offers of the store."""
    with served(tmp_path) as web:
        settings = web.context.settings
        store = open_database(settings.database_url)
        for usd_hour, is_spot in ((1.0, True), (2.0, False)):
            answer = an_answer(an_offer(str(usd_hour), usd_hour, spot=is_spot), observed_at=real_now())
            SqlHistoryRecorder(store).record(answer, lane="sweep", gpu="H100 SXM", spot=is_spot)
        store.close()
        text = JOB.replace('"H100" }', '"H100", spot = "first" }\nhours = 6\n')
        (tmp_path / "train.toml").write_text(text + 'deadline = "20h"\n')
        (tmp_path / "open.toml").write_text(text)
        job, without = submit_jobs(settings, [tmp_path / "train.toml", tmp_path / "open.toml"]).jobs
        found = details_view(job_details(settings, job.job_id)).json()["spot_first"]
        planned, _ = job_plan_json(plan_jobs(settings))["jobs"]
        assert found == planned["spot_first"]
        assert (found["spot_usd"], found["on_demand_usd"]) == (pytest.approx(7.2), pytest.approx(14.4))
        page = web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text
        text = r"<dt>Spot only</dt><dd>until [^<]+; about \$7.20 as spot, \$14.40 on demand at once</dd>"
        assert re.search(text, page)
        page = web.client.get(f"/jobs/{without.job_id}", headers=PAGE).text
        assert "once there is a machine on demand; about $7.20 as spot, $14.40 on demand<" in page
        moved(settings, job, (JobState.RENTING,), real_now())
        assert details_view(job_details(settings, job.job_id)).spot_first is None


def test_the_first_sentence_of_the_list_says_what_runs_and_what_waits(tmp_path: Path) -> None:
    with served(tmp_path) as web:
        assert "No job runs or waits." in web.client.get("/jobs", headers=PAGE).text
        for name, more in (("one", ""), ("two", 'depends_on = ["one"]\n')):
            (tmp_path / f"{name}.toml").write_text(more + JOB.replace("max_usd = 10", "max_price = 1.8"))
        submit_jobs(web.context.settings, [tmp_path / "one.toml", tmp_path / "two.toml"])
        a_running_job(web.context.settings, tmp_path)
        listed = web.client.get("/jobs", headers=PAGE).text
        assert "1 runs, 2 wait; the next starts at $1.80/GPU-h or less." in listed
        assert "until one is done" in listed
        assert "Plan a job" in listed


def test_the_first_sentence_of_a_job_is_its_state(tmp_path: Path) -> None:
    with served(tmp_path) as web:
        settings = web.context.settings
        job = a_running_job(settings, tmp_path)

        def answer() -> str:
            found = re.search(r'<p class="answer">(.*?)</p>', web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text)
            assert found is not None
            return re.sub(r"<[^>]+>", "", found[1]).replace("\N{NO-BREAK SPACE}", " ")

        said = answer()
        assert re.match(r"25 % done, about \d+ min left\. Ready around .*, before .*\. It will cost about \$3", said)
        job = moved(settings, job, (JobState.PREEMPTED,), real_now())
        assert answer().startswith("Its machine was lost; it goes on on another one")
        job = moved(settings, job, (JobState.QUEUED,), real_now())
        assert answer().startswith("Waits: $")
        job = moved(settings, job, (JobState.RENTING, JobState.PREPARING, JobState.RUNNING), real_now())
        job = moved(settings, job, (JobState.FAILED,), real_now(), exit_code=1)
        assert re.match(r"Failed: exit code 1 after 30 min\. It cost \$1\.08\.", answer())
        job = moved(settings, job, (JobState.QUEUED, JobState.CANCELLED), real_now())
        assert answer() == "Cancelled. It cost $1.08."


def test_a_job_with_a_step_before_is_one_job_whose_page_says_which_step_it_is_in(tmp_path: Path) -> None:
    prepare = '[prepare]\ncommand = "clean <i>"\noutputs = "data/*"\nlimit = { max_price = 0.10 }\nhours = 2\n'
    with served(tmp_path) as web:
        (tmp_path / "train.toml").write_text(JOB + prepare)
        (job,) = submit_jobs(web.context.settings, [tmp_path / "train.toml"]).jobs
        assert "$0.100/h or less, to prepare its data" in web.client.get("/jobs", headers=PAGE).text
        page = web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text
        for text in ("clean &lt;i&gt;", "no GPU, $0.100/h", "data/*", "python train.py", "$10.00 in all"):
            assert text in page, text
        store = open_database(f"sqlite:///{tmp_path}/gpuwatch.db")
        repository = SqlJobRepository(store)
        job = repository.record(job, JobTransition(to_state=JobState.RENTING, at=NOON))
        assert "prepares its data" in web.client.get("/jobs", headers=PAGE).text
        assert "its own machine is rented after that" in web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text
        for state in (JobState.PREPARING, JobState.FETCHING):
            job = repository.record(job, JobTransition(to_state=state, at=NOON))
        changes = {"definition": after_preparation(job.definition, 1)}
        handed = JobTransition(to_state=JobState.QUEUED, at=NOON, changes=changes, detail={"prepared": 2})
        repository.record(job, handed)
        store.close()
        page = web.client.get(f"/jobs/{job.job_id}", headers=PAGE).text
        assert "Its data is prepared; it waits for its own machine" in page
        assert "to prepare its data" not in page
