"""Commands and buttons of a chat, with the real daemon, the embedded marketplace and a Bot API on loopback."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches
from tests.telegram_double import TOKEN, Shown, TelegramDouble, telegram

pytestmark = pytest.mark.slow
OWNER, FOREIGNER, GROUP = 5001, 6666, -4001


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.5)) as opened:
        yield opened


@pytest.fixture
def double() -> Iterator[TelegramDouble]:
    with telegram() as opened:
        opened.chats = {str(OWNER), str(GROUP)}
        yield opened


def chat_by(double: TelegramDouble, chat: int = OWNER, more: str = "") -> str:
    return f'[notify.telegram]\nbot_token = "{TOKEN}"\nchat_id = {chat}\nbase_url = "{double.base_url}"\n{more}'


def a_message(double: TelegramDouble, text: str = "", label: str = "") -> Shown:
    """Return the first message with this text and a button with this label."""

    def found() -> Shown | None:
        fits = (one for one in tuple(double.shown) if text in one.text)
        return next((one for one in fits if not label or any(got.startswith(label) for got in one.labels)), None)

    return wait_for(found)


def pressed(double: TelegramDouble, shown: Shown, label: str, user: int = OWNER, data: str | None = None) -> str:
    """Press it; return the answer, within the promised two seconds; a busy machine gets more."""
    press_id = double.press(shown, label, user, data)
    text, after_s = wait_for(lambda: double.answers.get(press_id))
    is_crowded = os.getloadavg()[0] > 2 * len(os.sched_getaffinity(0))
    assert after_s < (30.0 if is_crowded else 2.0)
    return str(text)


def edited(double: TelegramDouble, shown: Shown, text: str) -> Shown:
    wait_for(lambda: text in double.now(shown).text)
    return double.now(shown)


def states(home: Home) -> list[str]:
    return [str(launch["state"]) for launch in home.launches()]


def test_one_press_rents_what_was_quoted_once(market: Marketplace, double: TelegramDouble, tmp_path: Path) -> None:
    bargain(market, 0.5)
    # a repetition would join the first alert in one message if the machine is slow
    home = Home(tmp_path, market.url, action="ask", repeat_every="1h", extra=chat_by(double))
    with home.daemon() as child:
        double.write("/status", OWNER)
        assert "1 watch, renting is on" in a_message(double, "Status at").text
        alert = a_message(double, "gpuwatch approvals approve", "Approve")
        assert alert.labels == ["Approve", "Deny", "Silence 6 h", "Why"]
        assert market.ledger.creates == ()
        data = alert.data("Approve")
        pressed(double, alert, "Approve")
        after = edited(double, alert, "▸ rented H100 SXM")
        assert "gpuwatch approvals approve" in after.text
        assert after.labels == ["Stop", "Extend", "Cost"]
        assert "already" in pressed(double, alert, "Approve", data=data)
        wait_for(lambda: states(home) == ["running"])
        terminate(child)
    assert len(market.ledger.creates) == 1
    assert "Traceback" not in home.log()
    assert TOKEN not in home.log()


def test_a_press_after_a_restart_counts_and_comes_to_one_instance(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    bargain(market, 0.5)
    home = Home(tmp_path, market.url, action="ask", repeat_every="1h", extra=chat_by(double))
    with home.daemon() as child:
        alert = a_message(double, "gpuwatch approvals approve", "Approve")
        terminate(child)
    press_id = double.press(alert, "Approve", OWNER)
    double.press(alert, "Approve", OWNER)
    with home.daemon() as child:
        wait_for(lambda: press_id in double.answers)
        edited(double, alert, "▸ rented H100 SXM")
        wait_for(lambda: states(home) == ["running"])
        terminate(child)
    assert len(market.ledger.creates) == 1


@pytest.mark.parametrize("users", [(), (OWNER,)])
def test_foreign_and_forged_presses_never_rent(
    market: Marketplace, double: TelegramDouble, tmp_path: Path, users: tuple[int, ...]
) -> None:
    bargain(market, 0.5)
    chat = GROUP if users else OWNER
    # on a slow machine the first alert may come in one message with others, without buttons; a later one is alone
    home = Home(
        tmp_path, market.url, action="ask", repeat_every="1m", extra=chat_by(double, chat, f"users = {list(users)}\n")
    )
    with home.daemon() as child:
        alert = a_message(double, "gpuwatch approvals approve", "Approve")
        assert "not authorised" in pressed(double, alert, "Approve", FOREIGNER)
        good = alert.data("Approve")
        forged = [
            good[:-1] + ("A" if good[-1] != "A" else "B"),
            good.replace("a.", "d.", 1),
            "approve:" + good[2:14],
            "",
            "x" * 64,
            "é" * 20,
        ]
        for data in forged:
            assert "not belong to this gpuwatch" in pressed(double, alert, "Approve", data=data)
        double.write("/approve " + good.split(".")[1], FOREIGNER, chat)
        double.write("/status", FOREIGNER)
        wait_for_searches(market)
        assert market.ledger.creates == ()
        assert not any("Status at" in one.text for one in double.shown)
        pressed(double, alert, "Approve")  # the owner's own still works
        edited(double, alert, "▸ rented")
        terminate(child)
    assert len(market.ledger.creates) == 1


def test_a_launch_is_stopped_after_asking_once_more(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    bargain(market)
    home = Home(tmp_path, market.url, extra=chat_by(double))
    with home.daemon() as child:
        alert = a_message(double, "Launch", "Stop")
        assert alert.labels == ["Stop", "Extend", "Cost"]
        wait_for(lambda: states(home) == ["running"])
        pressed(double, alert, "Cost")
        edited(double, alert, "· cost")
        pressed(double, alert, "Stop")
        edited(double, alert, "are destroyed")
        assert market.ledger.alive()
        pressed(double, alert, "Cancel")
        assert edited(double, alert, "Cancelled").labels[:1] == ["Stop"]
        pressed(double, alert, "Extend")
        edited(double, alert, "By how much?")
        pressed(double, alert, "+2h")
        edited(double, alert, "Extend launch")
        again = double.now(alert).data("Yes, +2h")
        pressed(double, alert, "Yes, +2h")
        edited(double, alert, "runs until")
        assert "already" in pressed(double, alert, "", data=again)
        assert _runtime(home) == 3 * 3600
        pressed(double, alert, "Stop")
        edited(double, alert, "are destroyed")
        pressed(double, alert, "Yes, stop")
        edited(double, alert, "has ended")
        terminate(child)
    assert not market.ledger.alive()


def _runtime(home: Home) -> float:
    import sqlite3

    with sqlite3.connect(home.folder / "gpuwatch.db") as connection:
        found: Any = connection.execute("SELECT max_runtime_s FROM launch").fetchone()[0]
    connection.close()
    return float(found)


def stopped_and_started(market: Marketplace, double: TelegramDouble, said: Callable[[str, str], Shown]) -> None:
    """Keep the disk of the one launch by its buttons, and start it again by a command."""
    asked = said("/stop", "Which launch should end?")
    launch_id = asked.labels[0].removeprefix("Stop ")
    pressed(double, asked, asked.labels[0])
    assert "Stop, keep the disk…" in edited(double, asked, "are destroyed").labels
    pressed(double, asked, "Stop, keep the disk…")
    edited(double, asked, "and keep its disk?")
    pressed(double, asked, "Yes, keep the disk")
    wait_for(lambda: any("disk is kept until" in one.text and "Start…" in one.labels for one in double.shown))
    assert [one["intended_status"] for one in market.instances()] == ["stopped"]
    asked = said(f"/start {launch_id} 2h", "again for 2h?")
    pressed(double, asked, "Yes, start")
    wait_for(lambda: any(": running again" in one.text for one in double.shown))
    assert [one["intended_status"] for one in market.instances()] == ["running"]


def test_every_command_answers_and_offers_what_it_needs_as_buttons(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    bargain(market)
    home = Home(tmp_path, market.url, extra=chat_by(double), max_total=1)
    with home.daemon() as child:
        wait_for(lambda: states(home) == ["running"])
        launch_id = home.launches()[0]["launch_id"]

        def said(command: str, text: str) -> Shown:
            """Return the one message that answers a command."""
            before = len(double.shown)
            double.write(command, OWNER)
            wait_for(lambda: any(text in one.text for one in double.shown[before:]))
            return next(one for one in double.shown[before:] if text in one.text)

        assert "/status" in said("/help", "gpuwatch in this chat").text
        assert "cheap: H100" in said("/watches", "1 watch").text
        offered = said("/offers", "Which GPU?")
        pressed(double, offered, "H100")
        assert "/GPU-h" in edited(double, offered, "▸").text
        assert "commission included" in said("/offers@gpuwatch_bot H100", "of H100 at").text
        assert "available" not in said("/offers Q9000", "Q9000").text
        assert launch_id in said("/launches", "Launches").text
        said("/costs", "Costs of")
        said("/approve", "No approval is")
        assert said("/stop", "Which launch should end?").labels == [f"Stop {launch_id}"]
        assert said(f"/extend {launch_id} 90m", "by 1h30m").labels == ["Yes, +1h30m", "Cancel"]
        stopped_and_started(market, double, said)
        assert said("/start", "This is gpuwatch")
        paused = said("/pause", "Renting is paused")
        pressed(double, paused, "Resume renting")
        edited(double, paused, "Renting is resumed")
        assert not home.run("pause", "--list", "--json").stdout.strip("[] \n")
        said("/pause cheap 6h", "by watch 'cheap' is paused")
        said("/resume cheap", "Resumed: watch cheap")
        said("/silence cheap 6h", "No offer alerts for cheap")
        assert '"cheap"' in home.run("silence", "--list", "--json").stdout
        said("/silence nothing", "nothing")
        said("/plan", "What is it for?")
        said("/plan 7b", "7b: ")
        said("/plan purple", "Pass a model size")
        said("/nonsense", "Unknown command 'nonsense'")
        wait_for(lambda: _history(double))
        terminate(child)
    assert double.photos[-1].startswith(b"\x89PNG")
    assert "Traceback" not in home.log()


def _history(double: TelegramDouble) -> bool:
    """Before the first sweep there is nothing to draw."""
    before = len(double.shown)
    double.write("/history H100", OWNER)
    wait_for(lambda: len(double.shown) > before)
    return bool(double.photos)
