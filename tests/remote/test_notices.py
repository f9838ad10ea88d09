"""The runner reads its provider's notice from the machine's metadata, and lets the command save."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpuwatch.domain.jobs.run_status import RunPhase
from gpuwatch.domain.launches.interruption import InterruptionKind, InterruptionNotice
from gpuwatch.testing.suite import case
from tests.remote.conftest import RunOnMachine
from tests.remote.imds import Imds

SAVES = "trap 'echo saved > last; exit 0' TERM; echo up; while :; do sleep 0.1; done\n"
GOES = "2026-11-30T03:02:00Z"


@pytest.fixture
def imds() -> Iterator[Imds]:
    with Imds() as service:
        yield service


def begin(run: RunOnMachine, imds: Imds, notices: str, command: str = SAVES) -> None:
    run.prepare(command)
    run.settings = f"GPUWATCH_RUNNER_IMDS={imds.url} GPUWATCH_RUNNER_IMDS_EVERY_S=0.2"
    run.start(notices=notices)
    run.until(lambda status: status.log)


def test_a_command_with_a_checkpoint_saves_at_once_when_the_machine_is_taken_back(
    run: RunOnMachine, imds: Imds
) -> None:
    begin(run, imds, "imds-save")
    run.until(lambda status: len(imds.asked) > 3)
    assert run.observe().notice is None
    imds.announce("terminate", GOES)
    status = run.ended()
    at = datetime(2026, 11, 30, 3, 2, tzinfo=UTC)
    assert status.notice == InterruptionNotice(kind=InterruptionKind.TERMINATE, at=at)
    assert status.reason == "the provider takes the machine back"
    assert (run.work / "last").read_text() == "saved\n"


def test_a_command_without_a_checkpoint_runs_on(run: RunOnMachine, imds: Imds) -> None:
    imds.announce("stop", GOES)
    begin(run, imds, "imds")
    status = run.until(lambda status: status.notice)
    assert status.notice is not None
    assert (status.phase, status.notice.kind) == (RunPhase.RUNNING, InterruptionKind.STOP)
    run.runner(f"stop {run.folder} over")
    assert run.ended().reason == "over"


def test_a_higher_risk_is_reported_and_ends_nothing_until_the_machine_goes(run: RunOnMachine, imds: Imds) -> None:
    imds.answers["events/recommendations/rebalance"] = b'{"noticeTime": "2026-11-30T03:00:00Z"}'
    begin(run, imds, "imds-save")
    status = run.until(lambda status: status.notice)
    assert (status.phase, status.notice) == (RunPhase.RUNNING, InterruptionNotice(kind=InterruptionKind.REBALANCE))
    imds.announce("terminate", GOES)
    assert run.ended().notice != status.notice


def test_metadata_that_makes_no_sense_does_no_harm(run: RunOnMachine, imds: Imds) -> None:
    begin(run, imds, "imds-save")
    hostile = {
        "no JSON": b"terminate",
        "another action": b'{"action": "$(touch pwned)", "time": "`touch pwned`"}',
        "another kind": b'{"action": "explode", "time": "2026-11-30T03:02:00Z"}',
        "lines": b'{"action": "explode\\nphase=ended", \n"time": "x"}\nlease=1\nphase=ended',
        "empty": b"",
        "ten megabytes": b"x" * 10_000_000,
        "bytes": bytes(range(256)) * 4,
    }
    for name, answer in hostile.items():
        with case(name):
            imds.answers["spot/instance-action"] = answer
            seen = len(imds.asked)
            status = run.until(lambda _, seen=seen: len(imds.asked) > seen + 3)  # type: ignore[misc]
            assert (status.phase, status.notice) == (RunPhase.RUNNING, None)
    run.runner(f"stop {run.folder} over")
    assert run.ended().reason == "over"
    assert not (run.work / "pwned").exists()


def test_other_machines_are_not_asked(run: RunOnMachine, imds: Imds) -> None:
    imds.announce("terminate", GOES)
    begin(run, imds, "none")
    run.until(lambda status: status.phase is RunPhase.RUNNING)
    run.runner(f"stop {run.folder} over")
    assert (run.ended().notice, imds.asked) == (None, [])
