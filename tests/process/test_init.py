"""`gpuwatch init` on a real terminal, against the embedded marketplace and a Bot API on loopback."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.checkout import ROOT
from tests.pty_terminal import PtyTerminal, on_terminal
from tests.telegram_double import TOKEN, TelegramDouble, telegram

pytestmark = pytest.mark.slow
OWNER, FOREIGNER = 5001, 6666
GPUWATCH = (sys.executable, "-m", "gpuwatch")


@pytest.fixture(scope="module")
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=7, key="demo-key", size=150, delays=Delays(running_s=0.5)) as opened:
        yield opened


@pytest.fixture
def double() -> Iterator[TelegramDouble]:
    with telegram() as opened:
        opened.chats = {str(OWNER)}
        yield opened


@pytest.fixture
def env(market: Marketplace, double: TelegramDouble, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "TZ": "Europe/Berlin",
        "GPUWATCH_PROVIDERS__VASTAI__BASE_URL": market.url, "GPUWATCH_NOTIFY__TELEGRAM__BASE_URL": double.base_url,
        "GPUWATCH_TEST_PACE": "20",
    }  # fmt: skip


def write_to_bot(terminal: PtyTerminal, double: TelegramDouble, user: int, *, with_code: bool = True) -> None:
    """Do what the terminal says: open the link and press Start."""
    terminal.wait_for("waiting for your message")
    (code,) = re.findall(r"start=(\w+)", terminal.seen)
    double.write(f"/start {code}" if with_code else "hello", user)


def answer_prices(terminal: PtyTerminal) -> None:
    terminal.answer("GPU [H100]:", "4090")
    terminal.answer("reserve in percent [20]:")
    terminal.answer("USD per GPU-hour")
    terminal.answer("alert, ask or rent [alert]:")


def test_five_questions_make_settings_with_which_doctor_is_content(
    double: TelegramDouble, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("# mine\nOTHER=1\n")
    with on_terminal([*GPUWATCH, "init"], tmp_path, env) as terminal:
        answer_prices(terminal)
        terminal.answer("Channel [telegram]:")
        terminal.answer("Paste the token", TOKEN)
        terminal.wait_for("The bot is GPU watch (@gpuwatch_test_bot).")
        write_to_bot(terminal, double, OWNER)
        terminal.answer("API key of vast.ai", "demo-key")
        terminal.wait_for("vast.ai accepts the key, the balance is $100.00.")
        terminal.answer("Start it now", "n")
        assert terminal.wait() == 0
        assert TOKEN not in terminal.seen
        assert "demo-key" not in terminal.seen
    text = (tmp_path / "gpuwatch.toml").read_text()
    assert f"chat_id = {OWNER}" in text
    assert 'timezone = "Europe/Berlin"' in text
    assert (tmp_path / ".env").read_text().splitlines() == [
        "# mine", "OTHER=1", f"GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN={TOKEN}", "VAST_API_KEY=demo-key",
    ]  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / ".env", tmp_path / "gpuwatch.toml")} == {0o600}
    assert [shown.chat_id for shown in double.shown] == [str(OWNER)] * 2
    assert double.shown[0].text.startswith("This is gpuwatch.")
    assert double.updates == []  # settled: the daemon does not read it again
    with on_terminal([*GPUWATCH, "doctor"], tmp_path, env, columns=200) as terminal:
        assert terminal.wait() == 0
        assert "FAULT" not in terminal.seen


def test_a_foreign_user_who_writes_first_is_asked_about(
    double: TelegramDouble, env: dict[str, str], tmp_path: Path
) -> None:
    words = ["init", "--gpu", "H100", "--max-price", "2", "--action", "alert"]
    with on_terminal([*GPUWATCH, *words], tmp_path, env) as one:
        one.answer("reserve in percent")
        one.answer("Channel [telegram]:")
        one.answer("Paste the token", f"9{TOKEN[1:]}")  # of another bot
        one.wait_for("is not a bot's token")
        one.answer("Paste the token", TOKEN)
        write_to_bot(one, double, FOREIGNER, with_code=False)
        one.answer("A message from A. Is that you?")  # Enter: anybody can have the owner's name
        double.write("hi", OWNER)
        one.answer("A message from A. Is that you?", "y")
        one.answer("API key of vast.ai")
        one.answer("Start it now", "n")
        assert one.wait() == 0
    assert f"chat_id = {OWNER}" in (tmp_path / "gpuwatch.toml").read_text()
    assert {shown.chat_id for shown in double.shown} == {str(OWNER)}


PROMPTS = (
    "GPU [H100]:", "reserve in percent", "USD per GPU-hour", "alert, ask or rent", "Channel [telegram]:",
    "Paste the token", "waiting for your message", "API key of vast.ai",
)  # fmt: skip


@pytest.mark.parametrize("at", [0, 5, 6])
def test_ctrl_c_at_any_question_writes_nothing(
    double: TelegramDouble, env: dict[str, str], tmp_path: Path, at: int
) -> None:
    before = "VAST_OTHER=1\n"
    (tmp_path / ".env").write_text(before)
    with on_terminal([*GPUWATCH, "init"], tmp_path, env) as terminal:
        for number, prompt in enumerate(PROMPTS):
            if number == at:
                terminal.wait_for(prompt)
                assert terminal.interrupt() == 130
                break
            if prompt == "waiting for your message":
                write_to_bot(terminal, double, OWNER)
            else:
                terminal.answer(prompt, TOKEN if prompt == "Paste the token" else "")
        assert "Traceback" not in terminal.seen
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [".env"]
    assert (tmp_path / ".env").read_text() == before


def test_a_file_that_exists_is_replaced_only_after_a_yes(env: dict[str, str], tmp_path: Path) -> None:
    del env["GPUWATCH_NOTIFY__TELEGRAM__BASE_URL"]
    (tmp_path / "gpuwatch.toml").write_text("# mine")
    with on_terminal([*GPUWATCH, "init"], tmp_path, env) as terminal:
        terminal.answer("gpuwatch.toml exists. Replace it after the questions?")
        assert terminal.wait() == 0
    assert (tmp_path / "gpuwatch.toml").read_text() == "# mine"
    (tmp_path / ".env").write_text("VAST_API_KEY=old\n")
    with on_terminal([*GPUWATCH, "init"], tmp_path, env) as terminal:
        terminal.answer("Replace it after the questions?", "y")
        answer_prices(terminal)
        terminal.answer("Channel [telegram]:", "none")
        terminal.wait_for("The key of vast.ai is set already.")
        terminal.answer("Start it now", "n")
        assert terminal.wait() == 0
    assert 'gpu = "RTX 4090"' in (tmp_path / "gpuwatch.toml").read_text()
    assert (tmp_path / ".env").read_text() == "VAST_API_KEY=old\n"


def test_without_network_the_questions_go_on(env: dict[str, str], tmp_path: Path) -> None:
    del env["GPUWATCH_NOTIFY__TELEGRAM__BASE_URL"]
    env["GPUWATCH_PROVIDERS__VASTAI__BASE_URL"] = "http://127.0.0.1:9"
    with on_terminal([*GPUWATCH, "init"], tmp_path, env) as one:
        one.wait_for("H100: today's price is unknown")
        one.answer("GPU [H100]:")
        one.wait_for("No market answered: the questions go on with recorded prices.")
        one.answer("reserve in percent")
        assert "[1.05]" in one.answer("USD per GPU-hour [1.05]:")
        one.answer("alert, ask or rent")
        one.answer("Channel [telegram]:", "none")
        one.answer("API key of vast.ai", "a-key")
        one.wait_for("The key could not be checked")
        one.answer("Start it now", "n")
        assert one.wait() == 0
    assert "max_price = 1.05" in (tmp_path / "gpuwatch.toml").read_text()
