"""What the chat answers about watches, the market and held launches; nothing of Telegram is needed for it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.app.launches.launches import all_launches
from gpuwatch.app.watches.pauses import pauses
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.chat.chat_actions import answer_command, run_press
from gpuwatch.chat.replies import ChatContext, ChatReply
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.engine.alerts.alert_buttons import ButtonSigner, SignedButton
from gpuwatch.language import use_language
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.launches.test_launch_pages import ID, RENTS, stored
from tests.web.served import settings_in

BUDGET = RENTS.replace("max_usd_day = 60", "max_usd_hour = 2")


@pytest.fixture
def context(tmp_path: Path) -> ChatContext:
    """A watch that could rent an offer, if the budget of the hour were higher."""
    settings, now = settings_in(tmp_path, f"dry_run = false\n{BUDGET}"), real_now()
    with open_store(settings) as store:
        for lane in ("sweep", "hunt"):
            answer = an_answer(an_offer("m1", 3.05), observed_at=now - timedelta(seconds=30))
            SqlHistoryRecorder(store).record(answer, lane=lane, gpu="H100 SXM", spot=False)
    return ChatContext(settings=settings, signer=ButtonSigner(b"secret", "1", lambda: "abc123"), now=now)


def lines(reply: ChatReply) -> list[str]:
    return ["".join(piece.text for piece in line.pieces) for line in reply.lines]


def labels(reply: ChatReply) -> list[str]:
    return [button.label for row in reply.rows for button in row]


def pressed(context: ChatContext, reply: ChatReply, label: str) -> ChatReply:
    data = next(button.data for row in reply.rows for button in row if button.label.startswith(label))
    button = context.signer.read(data, context.now)
    assert isinstance(button, SignedButton)
    return run_press(context, button)


def test_why_names_the_rule_that_blocks_first_and_then_the_others(context: ChatContext) -> None:
    said = lines(reply := answer_command(context, "why", "cheap"))
    assert said[0] == "cheap: Why it does not rent now"
    rules = [line for line in said[1:] if line[0] in "✓✗?"]
    assert rules[0].startswith("✗ Key and account at vast.ai: ")  # there is no key
    assert "✗ Hourly budget: $3.66 of $2.00/h left" in rules
    assert any(line.startswith("✓ Price at or under the limit: $3.66 of $7.20") for line in rules)
    assert said[-1].startswith("7 d: At or under the limit for 1 of 1 polled hours")
    assert labels(reply) == ["Pause cheap", "Silence cheap"]


def test_why_without_a_name_offers_the_watches(context: ChatContext) -> None:
    asked = answer_command(context, "why", "")
    assert labels(asked) == ["cheap"]
    assert lines(pressed(context, asked, "cheap"))[0].startswith("cheap: ")
    assert "Why cheap" in labels(answer_command(context, "watches", ""))
    assert "there is no watch" in lines(answer_command(context, "why", "cheep"))[0].lower()


def test_why_answers_in_the_language_of_the_settings(context: ChatContext) -> None:
    with use_language("ru"):
        said = lines(answer_command(context, "why", "cheap"))
    assert said[0].startswith("cheap: Почему")
    assert not [line for line in said if "budget" in line.lower() or "limit" in line.lower()]


def test_the_market_names_prices_and_where_they_stand(context: ChatContext) -> None:
    first, *gpus = lines(answer_command(context, "market", ""))
    assert first == "Too little history to tell what is cheap today."
    assert gpus == ["H100 SXM: $3.66 per GPU-hour · Too little history · 1 offer"]


def test_a_pause_has_a_reason(context: ChatContext) -> None:
    answer_command(context, "pause", "cheap 6h because the data is not ready")
    (pause,) = pauses(context.settings).by_hand
    assert (pause.watch, pause.why) == ("cheap", "the data is not ready")
    assert pause.until is not None
    assert labels(answer_command(context, "why", "cheap")) == ["Resume cheap", "Silence cheap"]


def test_a_silence_ends(context: ChatContext) -> None:
    answer_command(context, "silence", "cheap 6h")
    assert lines(answer_command(context, "silence", "cheap end")) == ["Watch cheap sends alerts again."]
    assert lines(answer_command(context, "silence", "cheap end")) == ["Watch cheap was not silenced."]


def test_a_held_launch_is_settled_after_a_question(context: ChatContext) -> None:
    assert lines(answer_command(context, "resolve", "")) == ["No launch is held."]
    launch = stored(context.settings, state=LaunchState.HELD)
    assert lines(answer_command(context, "resolve", ""))[1].startswith(f"/resolve {ID}: ")
    asked = answer_command(context, "resolve", ID)
    assert asked.is_question
    assert launch.label in lines(asked)[0]
    assert "does not list its instances" in lines(answer_command(context, "resolve", f"{ID} 7"))[0]
    assert all_launches(context.settings)[0].state is LaunchState.HELD
    pressed(context, asked, "Yes")
    assert all_launches(context.settings)[0].is_over


def test_a_launch_says_the_most_that_it_can_cost(context: ChatContext) -> None:
    stored(context.settings)
    assert "at most $" in lines(answer_command(context, "launches", ""))[1]
