"""How the Telegram chat handles presses and faults, with a Bot API on loopback; the test sets the time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from gpuwatch.chat.telegram.receiver import PressAnswer, command_in
from gpuwatch.chat.telegram.updates import read_updates
from gpuwatch.engine.alerts.alert_buttons import ButtonAction, ButtonFault, ButtonSigner, SignedButton, subject_key
from gpuwatch.errors import StoreError
from gpuwatch.ports.alerts import DATA_BYTES
from gpuwatch.storage.alerts.chat_inbox import ChatInbox, ReceivedUpdate, StoredUpdate
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import Database, open_database
from tests.builders_jobs import a_job
from tests.chat.telegram_chat import NOON, OWNER, Chat, audits
from tests.process.daemon_child import wait_for

SILENCE = ("Silence 6 h", ButtonAction.SILENCE, subject_key("h100"), timedelta(hours=1))


def test_a_press_works_once_and_the_other_buttons_stay(chat: Chat) -> None:
    shown = chat.shows(SILENCE, ("Why", ButtonAction.WHY, "a" * 12, timedelta(days=1)))
    with chat.open():
        first, second = (chat.double.press(shown, "Silence", OWNER) for _ in range(2))
        assert "No offer alerts for h100" in chat.answer(first)
        assert "already" in chat.answer(second)
        wait_for(lambda: "▸ No offer alerts for h100" in chat.double.now(shown).text)
    assert chat.double.now(shown).labels == ["Why"]
    assert chat.double.now(shown).text.count("▸") == 1


def test_what_is_pressed_or_typed_leaves_an_audit_event_and_what_only_reads_none(
    chat: Chat, database: Database
) -> None:
    shown = chat.shows(SILENCE, ("Why", ButtonAction.WHY, "a" * 12, timedelta(days=1)))
    with chat.open():
        chat.answer(chat.double.press(shown, "Why", OWNER))
        chat.answer(chat.double.press(shown, "Silence", OWNER))
        chat.double.write("/pause", OWNER)
        chat.double.write("/pause", OWNER)  # changes nothing
        chat.double.write("/approve", OWNER)
        found = wait_for(lambda: len(audited := audits(database)) == 2 and audited)
    assert [one.alert.headline for one in found] == ["watch h100 silenced", "renting paused: from the chat"]
    assert all(dict(one.alert.facts)["By"] == f"Telegram (user {OWNER})" for one in found)


def test_a_chat_that_moves_while_gpuwatch_runs_is_obeyed_at_its_new_id(chat: Chat, database: Database) -> None:
    chat.double.chats |= {"-1007", "-1008"}
    with chat.open():
        Outbox(database).save_new_address("telegram", str(OWNER), "-1007", NOON)
        chat.double.write("/help", OWNER, chat=-1008)  # another group
        chat.double.write("/help", OWNER, chat=-1007)
        wait_for(lambda: chat.double.shown and not chat.double.updates)
    assert [shown.chat_id for shown in chat.double.shown] == ["-1007"]


def test_start_explains_the_bot_and_to_a_foreign_user_only_how_to_register(chat: Chat) -> None:
    chat.double.chats |= {"6666"}
    with chat.open():
        chat.double.write("/start abc", OWNER)
        wait_for(lambda: chat.double.shown)
        for text in ("hello", "/start", "/start"):
            chat.double.write(text, 6666 if text != "hello" else 7777)
        wait_for(lambda: len(chat.double.shown) == 2)
        chat.double.write("/help", OWNER)
        wait_for(lambda: len(chat.double.shown) == 3)
    (explained,) = [shown.text for shown in chat.double.shown if shown.text.startswith("This is gpuwatch;")]
    assert "It watches GPU markets for you (1 watch: h100). It rents nothing: dry_run is true." in explained
    assert "/status – " in explained
    (answer,) = [shown for shown in chat.double.shown if shown.chat_id == "6666"]
    assert "set chat_id = 6666" in answer.text
    assert "h100" not in answer.text


def test_a_late_press_does_nothing(chat: Chat) -> None:
    shown = chat.shows(SILENCE)
    chat.clock.now += timedelta(hours=1)
    with chat.open():
        assert chat.answer(chat.double.press(shown, "Silence", OWNER)) == ButtonFault.LATE.value
    assert chat.double.edits == []


def test_of_two_daemons_one_polls_and_the_other_takes_over(chat: Chat, database_url: str) -> None:
    """Telegram ends one of two concurrent requests with 409, and so does the double."""
    other = open_database(database_url)
    with chat.open(other):
        with chat.open():
            chat.double.write("/help", OWNER)
            wait_for(lambda: chat.double.shown)
            chat.double.write("/help", OWNER)
            wait_for(lambda: len(chat.double.shown) == 2)
        chat.clock.now += timedelta(seconds=60)
        chat.double.write("/help", OWNER)
        wait_for(lambda: len(chat.double.shown) == 3)
    other.close()
    assert chat.double.offsets == sorted(chat.double.offsets)


def test_what_was_sent_while_nobody_polled_is_answered_once(chat: Chat) -> None:
    chat.double.write("/help", OWNER)
    for _ in range(2):
        with chat.open():
            wait_for(lambda: chat.double.shown)
            wait_for(lambda: not chat.double.updates)
    assert len(chat.double.shown) == 1


@pytest.mark.parametrize("failures", [0, 1], ids=["store answers", "store fails once"])
def test_an_interrupted_update_is_finished_by_the_next_start(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    answers, unfinished = iter([StoreError("database is locked")] * failures), ChatInbox.unfinished

    def unfinished_after_failures(inbox: ChatInbox, since: datetime) -> Sequence[StoredUpdate]:
        for error in answers:
            raise error
        return unfinished(inbox, since)

    monkeypatch.setattr(ChatInbox, "unfinished", unfinished_after_failures)
    inbox = ChatInbox(chat.database, "8123456789", "gone")
    inbox.lease(chat.clock(), 40.0)
    body = '{"update_id": 5, "message": {"message_id": 1, "chat": {"id": 5001}, "from": {"id": 5001}, "text": "/help"}}'
    assert inbox.receive([ReceivedUpdate(update_id=5, body=body)], 6, chat.clock())
    chat.clock.now += timedelta(minutes=1)
    with chat.open():
        wait_for(lambda: chat.double.shown)
        wait_for(lambda: chat.double.offsets)
    assert chat.double.offsets[0] == 6


def test_a_press_is_answered_in_time_whatever_it_sets_off() -> None:
    answers: list[str] = []
    came = threading.Event()

    def answer(press_id: str, text: str) -> None:
        answers.append(text)
        came.set()

    press = PressAnswer("p", answer)
    assert came.wait(30.0)
    press.send_once("rented")
    assert len(answers) == 1
    assert answers[0].startswith("Working on it")


# --- presses and commands ---------------------------------------------------------------------------------------------


def a_signer(secret: bytes = b"secret", chat: str = "1") -> ButtonSigner:
    return ButtonSigner(secret, chat, lambda: "abc123")


@pytest.mark.parametrize("action", list(ButtonAction))
def test_data_fits_and_reads_back_and_every_changed_character_shows(action: ButtonAction) -> None:
    made = a_signer().button("x", action, "abcdefghijkl-1h30m", NOON + timedelta(days=7), "a1b2c3")
    assert len(made.data.encode()) <= DATA_BYTES
    read = a_signer().read(made.data, NOON)
    assert isinstance(read, SignedButton)
    assert (read.action, read.subject, read.bound) == (action, "abcdefghijkl-1h30m", "a1b2c3")
    for at in range(len(made.data)):
        forged = made.data[:at] + ("0" if made.data[at] != "0" else "1") + made.data[at + 1 :]
        assert a_signer().read(forged, NOON) is ButtonFault.FORGED
    assert a_signer(b"other").read(made.data, NOON) is ButtonFault.FORGED
    assert a_signer(chat="2").read(made.data, NOON) is ButtonFault.FORGED
    assert a_signer().read(made.data, NOON + timedelta(days=7)) is ButtonFault.LATE


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/status", ("status", "")),
        ("/stop@gpuwatch_bot  abc", ("stop", "abc")),
        ("/Deny abc\ntoo dear", ("deny", "abc too dear")),
        ("/", (None, "/")),
        ("stop it", (None, "stop it")),
        ("", (None, "")),
    ],
)
def test_commands_are_found_in_messages(text: str, found: tuple[str | None, str]) -> None:
    assert command_in(text) == found


@pytest.mark.parametrize("result", [b"{}", b"[1]", b'[{"no": 1}]', b"\xff", b"null"])
def test_what_is_not_updates_is_refused(result: bytes) -> None:
    with pytest.raises(ValueError, match="not a list of updates"):
        read_updates(result)


def test_an_update_of_an_unknown_form_is_left_out_and_confirmed() -> None:
    read = read_updates(b'[{"update_id": 7, "message": {"text": 5}}, {"update_id": 8, "poll": {}}]')
    assert ([update.update_id for update in read.updates], read.next_id, read.unread) == ([8], 9, 1)


def test_jobs_are_listed_with_state_and_cost(chat: Chat, database: Database) -> None:
    SqlJobRepository(database).submit([a_job(spent_microusd=1_500_000)])
    with chat.open():
        chat.double.write("/jobs", OWNER)
        found = wait_for(lambda: [one for one in chat.double.shown if "train" in one.text])
    assert "queued, $1.50" in found[0].text
    assert found[0].labels == ["Cancel train"]
