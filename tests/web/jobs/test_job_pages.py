"""The pages of jobs: the queue, a job's timeline, log and results; a host's output stays text."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.app.jobs.jobs import submit_jobs
from gpuwatch.domain.jobs.job import JobRun, JobState, JobTransition
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import open_database
from tests.builders import NOON
from tests.web.served import PAGE, served

JOB = 'command = "python train.py"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\n'


def test_the_queue_and_a_job_are_shown_and_markup_of_a_host_is_text(tmp_path: Path) -> None:
    with served(tmp_path) as web:
        assert "No jobs." in web.client.get("/jobs", headers=PAGE).text
        (tmp_path / "train.toml").write_text(JOB)
        (tmp_path / "next.toml").write_text(JOB)
        first, _ = submit_jobs(web.context.settings, [tmp_path / "train.toml", tmp_path / "next.toml"])
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
        for text in ("preparing", "25 %", "python train.py", "loss 0.5 &lt;script&gt;", "&lt;b&gt;x", "&lt;i&gt;a"):
            assert text in page, text
        assert "<script>alert" not in page
        assert web.client.get("/jobs/nope", headers=PAGE).status_code == 404
        items = web.client.get("/api/v1/jobs").json()["items"]
        assert [item["name"] for item in items] == ["next", "train"]
