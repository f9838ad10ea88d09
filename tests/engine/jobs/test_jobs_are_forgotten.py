"""A daemon runs for months: nothing in its memory grows with the jobs that are over."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.bootstrap.service import build_service
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.domain.jobs.job import JobState, JobTransition
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.watches.gather import unanswered
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.ports import Answer
from gpuwatch.settings import load
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import Database
from tests.builders_jobs import a_job
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import RENTS, WATCH, Bench, h100
from tests.engine.watches.test_hunt import TWENTY, Clock
from tests.jobs.job_world import JobWorld


def entries(*parts: object) -> dict[str, int]:
    """How much each container of these objects holds, their own parts included."""
    found: dict[str, int] = {}
    for part in parts:
        for name, value in vars(part).items():
            if isinstance(value, dict | set | list | frozenset):
                found[f"{type(part).__name__}.{name}"] = len(value)
    return found


class Answering(ScriptedMarket):
    """Answers every query alike."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    def search(self, query: Any) -> Answer:
        return self._answer


def _run(bench: Bench, jobs: Sequence[Sequence[Watch]], offers: int) -> dict[str, int]:
    """Poll for ever other jobs; return what is left in memory when they are over."""
    clock, hunted = Clock(), list[Watch]()
    market = Answering(
        an_answer(*(h100(3.0, machine_id=str(number), offer_id=str(number)) for number in range(offers)))
    )
    hunter = Hunter(
        market, bench.watches, TWENTY, bench.evaluator, lambda query, answer, now: None, threading.Event(),
        job_watches=lambda: tuple(hunted),
    )  # fmt: skip
    for group in jobs:
        hunted[:] = group
        hunter.run_round(clock, 30.0, 30.0)
        clock.now += timedelta(seconds=31)
        for watch in group:
            bench.slots.hold(watch.name)
        bench.evaluator.forget_except({watch.name for watch in bench.watches})
        hunted.clear()
    hunter.run_round(clock, 30.0, 30.0)
    evaluator = vars(bench.evaluator)
    return entries(
        hunter,
        bench.evaluator,
        bench.slots,
        *(evaluator[name] for name in ("observations", "_stock", "_notes")),
    )


def _jobs(groups: int, size: int) -> list[list[Watch]]:
    numbers = range(size)
    return [
        [msgspec.structs.replace(RENTS, name=f"job:{group}-{number}") for number in numbers] for group in range(groups)
    ]


def test_ten_thousand_jobs_leave_no_entry_behind() -> None:
    none = _run(Bench(WATCH), _jobs(1, 20), offers=2)
    assert _run(Bench(WATCH), _jobs(500, 20), offers=2) == none


def test_the_runs_of_jobs_leave_nothing_behind(tmp_path: Path) -> None:
    world = JobWorld(tmp_path, real=False)
    try:
        world.submit("echo step 1/2; while [ ! -e go ]; do sleep 0.1; done")
        world.until(lambda job: job.state is JobState.RUNNING and vars(world.runner)["_running"]._written)
        (world.work() / "go").touch()
        world.over()
        world.runner.tick(world.now)
        parts = [vars(world.runner)[name] for name in ("_running", "_copies")]
        assert set(entries(*parts).values()) == {0}
    finally:
        world.close()


def test_the_daemon_forgets_them_when_the_queue_has_moved_on(tmp_path: Path, database: Database) -> None:
    """What its tasks do, without the network."""
    (tmp_path / "gpuwatch.toml").write_text(f'database_url = "sqlite:///{tmp_path}/unused.db"\n')
    with build_service(load(str(tmp_path / "gpuwatch.toml")), database) as service:
        advance = next(task.run for task in periodic_tasks(service) if task.name == "jobs")
        repository = SqlJobRepository(database)
        repository.submit([a_job()])
        advance()
        known = msgspec.structs.replace(WATCH, name="job:train")
        unanswered_by_all = unanswered([known], NOON)
        service.polling.evaluator.evaluate([known], "vastai", False, unanswered_by_all, NOON)
        (job,) = repository.open_jobs()
        repository.record(job, JobTransition(to_state=JobState.CANCELLED, at=NOON))
        assert service.polling.evaluator.observations.of("job:train")
        advance()
        assert not service.polling.evaluator.observations.of("job:train")
