"""The chat speaks the language of the settings; what it changes is recorded in English."""

from __future__ import annotations

import msgspec

from gpuwatch.chat.chat_actions import COMMANDS
from gpuwatch.language import translate_composed, use_language
from tests.chat.telegram_chat import OWNER, Chat, audits
from tests.process.daemon_child import wait_for


def test_replies_menu_and_errors_are_russian_and_the_audit_is_english(chat: Chat) -> None:
    chat.settings = msgspec.structs.replace(chat.settings, language="ru")
    with chat.open():
        for command in ("/status", "/stop abc", "/silence h100 6h", "/help"):
            chat.double.write(command, OWNER)
        shown = wait_for(lambda: [one.text for one in chat.double.shown] if len(chat.double.shown) == 4 else None)
    status, stop, silence, explained = shown
    assert status.startswith("Состояние на 20")
    assert "1 наблюдение, пробный режим: gpuwatch ничего не арендует" in status
    assert stop == "Запуска 'abc' нет; см.: /launches"
    assert silence.startswith("Сигналов о предложениях h100 не будет до 20")
    assert "Площадки, запуски, что ждёт ответа" in explained
    assert [event.alert.headline for event in audits(chat.database)] == ["watch h100 silenced"]


def test_every_command_of_the_menu_has_a_russian_line() -> None:
    with use_language("ru"):
        assert [one.about for one in COMMANDS.values() if translate_composed(one.about) == one.about] == []
