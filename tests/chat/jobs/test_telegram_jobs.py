"""Jobs in the chat: listed, cancelled and retried by buttons, their logs; the buttons of a job's alert."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.app.jobs.job_actions import job_of
from gpuwatch.app.jobs.job_series import listed_series
from gpuwatch.app.jobs.jobs import submit_jobs
from gpuwatch.chat.jobs.jobs import log_pressed
from gpuwatch.chat.replies import ChatContext
from gpuwatch.domain.alerts.alert import AlertSpec
from gpuwatch.domain.alerts.job_texts import COMMAND_FAILED, FINISHED, INTERRUPTED, PREPARED, STOPPED_AFTER_PILOT
from gpuwatch.domain.jobs.job import JobState, JobTransition
from gpuwatch.engine.alerts.alert_buttons import AlertButtons, ButtonAction, ButtonSigner, SignedButton
from gpuwatch.engine.alerts.launch_alerts import job_alert
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import Database
from tests.builders_jobs import a_job
from tests.chat.telegram_chat import NOON, OWNER, Chat, audits
from tests.process.daemon_child import wait_for
from tests.stored_jobs import a_running_job
from tests.telegram_double import Shown
from tests.web.served import settings_in


def newest(chat: Chat, text: str) -> Shown:
    """Return the newest message with this text, in its current state."""
    found = wait_for(lambda: [one for one in chat.double.shown if text in chat.double.now(one).text])
    return chat.double.now(found[-1])


def test_a_job_is_cancelled_and_retried_by_buttons_each_asked_once_more_and_done_once(
    chat: Chat, database: Database, tmp_path: Path
) -> None:
    """Another person's press and an old question have no effect; each change stores one audit event with the actor."""
    job = a_running_job(chat.settings, tmp_path)
    jobs = SqlJobRepository(database)

    def state() -> JobState:
        return job_of(chat.settings, job.job_id).state

    with chat.open():
        chat.double.write("/jobs train", OWNER)
        shown = newest(chat, "12,000 tokens/s")
        assert shown.labels == ["Cancel", "Log"]
        chat.answer(chat.double.press(shown, "Cancel", OWNER + 1))
        chat.answer(chat.double.press(shown, "Cancel", OWNER))
        asked = wait_for(lambda: (now := chat.double.now(shown)).labels == ["Yes, cancel train", "No"] and now)
        assert state() is JobState.RUNNING
        data = asked.buttons[0][0][1]  # the button may be gone from the message before the second press
        first, second = (chat.double.press(asked, "Yes", OWNER, data) for _ in range(2))
        assert "Job train is cancelled" in chat.answer(first)
        assert "already" in chat.answer(second)
        assert state() is JobState.CANCELLED
        again = wait_for(lambda: (now := chat.double.now(shown)).labels[:1] == ["Retry"] and now)
        chat.answer(chat.double.press(again, "Retry", OWNER))
        question = wait_for(lambda: (now := chat.double.now(shown)).labels == ["Yes, retry train", "No"] and now)
        assert "Job train is queued again" in chat.answer(chat.double.press(question, "Yes", OWNER))
        assert state() is JobState.QUEUED
        wait_for(lambda: len(audits(database)) == 2)
        # it fails again, twice; a confirmation of the first failure has no effect on the second
        failed = jobs.record(job_of(chat.settings, job.job_id), JobTransition(to_state=JobState.FAILED, at=NOON))
        chat.double.write("/jobs train", OWNER)
        late = newest(chat, "state: failed")
        chat.answer(chat.double.press(late, "Retry", OWNER))
        old = wait_for(lambda: (now := chat.double.now(late)).labels == ["Yes, retry train", "No"] and now)
        queued = jobs.record(failed, JobTransition(to_state=JobState.QUEUED, at=NOON))
        jobs.record(queued, JobTransition(to_state=JobState.FAILED, at=NOON))
        assert "has changed in the meantime" in chat.answer(chat.double.press(old, "Yes", OWNER))
        assert state() is JobState.FAILED
    assert [one.alert.headline for one in audits(database)] == ["job train cancelled", "job train retried"]
    assert all(f"user {OWNER}" in dict(one.alert.facts)["By"] for one in audits(database))


def test_the_end_of_a_log_is_shown_without_codes_and_bounded(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    lines = [f"step {number}" for number in range(100)]
    job = a_running_job(settings, tmp_path, log="\n".join([*lines, "<b>bold</b>", "\x1b[31mred", "x" * 9000]) + "\n")
    signer = ButtonSigner(b"secret", "chat", lambda: "abc123")
    context = ChatContext(settings=settings, signer=signer, now=NOON)
    button = SignedButton(action=ButtonAction.JOB_LOG, subject=job.job_id, bound="", data="")
    reply = log_pressed(context, button)
    texts = ["".join(piece.text for piece in line.pieces) for line in reply.lines]
    assert texts[0] == "Log of job train, run 1"
    assert ("step 99" in texts, "step 80" in texts, "<b>bold</b>" in texts) == (True, False, True)
    assert max(map(len, texts)) <= 201
    assert "\x1b" not in "".join(texts)
    assert len("".join(texts)) < 4096


@pytest.mark.parametrize(
    ("spec", "labels"),
    [
        (FINISHED, ["Log"]),
        (COMMAND_FAILED, ["Retry", "Cancel", "Log"]),
        (STOPPED_AFTER_PILOT, ["Retry", "Cancel", "Log"]),
        (INTERRUPTED, ["Cancel", "Log"]),
        (PREPARED, ["Cancel", "Log"]),
    ],
)
def test_the_alert_of_a_job_bears_what_can_be_done_about_it(chat: Chat, spec: AlertSpec, labels: list[str]) -> None:
    fields = dict.fromkeys(("results", "instance", "how", "kept", "unfetched", "why", "where", "retries"), "3")
    alert = job_alert(a_job(launch_id="k" * 12, run_number=1), spec, NOON, **fields).alert
    (row,) = AlertButtons(chat.signer, lambda approval_id: None, chat.clock).buttons_for(alert)
    assert [one.label for one in row] == labels
    assert {read.subject for one in row if isinstance(read := chat.signer.read(one.data, NOON), SignedButton)} == {
        "jobaaaa2"
    }


def test_recurring_jobs_are_listed_with_their_next_run_and_ended_after_a_question(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "nightly.toml"
    file.write_text(
        'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_usd = 1 }\nschedule = "@daily"\nwithin = "6h"\n'
    )
    (series,) = submit_jobs(chat.settings, [file]).series
    with chat.open():
        chat.double.write("/jobs", OWNER)
        shown = newest(chat, "1 recurring")
        assert "nightly: @daily, next " in shown.text
        assert f"{series.next_at:%Y-%m-%d %H:%M}" in shown.text
        chat.double.write("/jobs nightly", OWNER)
        one = newest(chat, "Recurring job nightly")
        assert "next: @daily" in one.text
        assert one.labels == ["End it"]
        chat.answer(chat.double.press(one, "End it", OWNER))
        asked = wait_for(lambda: (now := chat.double.now(one)).labels == ["Yes, end nightly", "No"] and now)
        data = asked.buttons[0][0][1]
        first, second = (chat.double.press(asked, "Yes", OWNER, data) for _ in range(2))
        assert "Recurring job nightly is ended" in chat.answer(first)
        assert chat.answer(second)
        assert listed_series(chat.settings) == []


def test_a_job_that_prepares_its_data_is_one_job_that_says_so(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text(
        'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_usd = 1 }\n'
        '[prepare]\ncommand = "true"\nlimit = { max_price = 0.1 }\n'
    )
    submit_jobs(chat.settings, [file])
    with chat.open():
        chat.double.write("/jobs", OWNER)
        assert "train: queued, preparing its data" in newest(chat, "1 job").text
