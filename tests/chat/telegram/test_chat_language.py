"""The chat speaks the language of the settings; what it changes is recorded in English."""

from __future__ import annotations

import re

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


_ENGLISH = re.compile(r"[A-Za-z]{3,}")
_KEPT = re.compile(r"/\w+|'\w+'|: gpuwatch .*|gpuwatch|GPU|UTC|NAME|h100|H100( \w+)?|NOPE|vastai|\[record\]|train")
_TYPED = (
    "/costs", "/pause", "/resume", "/pause 2h", "/resume h100", "/silence nope 6h", "/history NOPE", "/history H100",
    "/offers H100", "/approve x", "/plan x", "/extend k3f 2h", "/start k3f7q2mzt5ab 2h", "/nonsense",
)  # fmt: skip


def test_every_command_answers_in_russian_with_its_buttons(chat: Chat) -> None:
    chat.settings = msgspec.structs.replace(chat.settings, language="ru")
    typed = [*(f"/{name}" for name in COMMANDS if name != "start"), *_TYPED]
    with chat.open():
        for command in typed:
            chat.double.write(command, OWNER)
        wait_for(lambda: len(chat.double.shown) == len(typed))
    said = [(command, text) for command, one in zip(typed, chat.double.shown, strict=True)
            for text in (*one.text.splitlines(), *one.labels)]  # fmt: skip
    assert [one for one in said if _ENGLISH.search(_KEPT.sub("", one[1]))] == []


def test_every_command_of_the_menu_has_a_russian_line() -> None:
    with use_language("ru"):
        assert [one.about for one in COMMANDS.values() if translate_composed(one.about) == one.about] == []
