"""The questions of `gpuwatch init`, with answers from a list and prices that are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.setup.first_watch.first_settings import settings_text
from gpuwatch.app.setup.first_watch.price_figures import LowPrice, PriceFigures
from gpuwatch.app.setup.first_watch.questions import (
    Answered,
    ChannelChoice,
    GivenAnswers,
    KeyCheck,
    Surroundings,
    ask_first_watch,
    first_watch,
    parse_price,
)
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import UsageError
from gpuwatch.ports.dialog import ChannelAnswers, Dialog
from gpuwatch.settings import load_draft

PHONE = ChannelAnswers(values={"chat_id": "5001"}, secrets={"bot_token": "1:x"})


class ScriptedDialog:
    """Gives answers in order: "" takes the default. `said`: what was shown."""

    def __init__(self, *answers: str) -> None:
        self._answers: Iterator[str] = iter(answers)
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text.strip())

    def ask(self, question: str, default: str = "") -> str:
        self.said.append(f"? {question} [{default}]")
        return next(self._answers) or default

    def ask_secret(self, question: str) -> str:
        return self.ask(question)

    def confirm(self, question: str, *, default: bool) -> bool:
        return (self.ask(question, "y" if default else "n")) == "y"

    def waiting(self, text: str) -> AbstractContextManager[object]:
        return nullcontext()


class FixedFigures:
    """The same prices for every card. `read`: the cards that were asked for."""

    def __init__(self, figures: PriceFigures) -> None:
        self._figures = figures
        self.read: list[Sequence[str]] = []

    def figures(self, names: Sequence[str]) -> PriceFigures:
        self.read.append(tuple(names))
        return self._figures


ON_SALE = PriceFigures(today=(LowPrice("vastai", Decimal("1.00")),))


def around(figures: PriceFigures = ON_SALE, **more: Any) -> Surroundings:
    plain: dict[str, Any] = {
        "reader": FixedFigures(figures), "rates": {"vastai": Decimal("0.20")}, "rates_hosts": True, "timezone": "UTC",
        "reserve_of": "vastai", "key_of": "vastai", "has_key": False,
        "choices": {"telegram": ChannelChoice("telegram", lambda _dialog: PHONE)}, "own_channels": (), "half_set": {},
        "send_test": lambda _channel, _answers: None, "check_key": lambda _key: KeyCheck(False, "It works."),
    }  # fmt: skip
    return Surroundings(**plain | more)


def asked(dialog: Dialog, where: Surroundings, **given: str) -> Answered:
    return ask_first_watch(dialog, GivenAnswers(**given), where)


def test_enter_alone_makes_a_watch_that_alerts(tmp_path: Path) -> None:
    dialog = ScriptedDialog(*[""] * 6)
    answered = asked(dialog, around())
    assert answered.first.gpu.name == "H100"
    assert answered.first.max_price == Decimal("1.20")
    assert (answered.first.action, answered.first.dry_run, answered.key) == (Action.ALERT, True, "")
    variables = {"GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": "1:x"}
    settings, _ = load_draft(tmp_path / "gpuwatch.toml", settings_text(answered.first).encode(), variables)
    assert [watch.name for watch in settings.watches] == ["h100"]
    assert settings.channels["telegram"].options["chat_id"] == "5001"


def test_every_setting_has_a_comment_and_there_are_about_fifteen() -> None:
    for action in ("alert", "rent"):
        answers = ["", "", "", action, *(["", "y"] if action == "rent" else []), "", "key"]
        lines = settings_text(asked(ScriptedDialog(*answers), around()).first).splitlines()
        settings = [line for line in lines if " = " in line]
        assert 10 <= len(settings) <= 18
        assert [line for line in settings if "  # " not in line] == []
        assert max(map(len, lines)) <= 120


def test_the_reserve_is_one_sentence_with_bill_and_compared_price() -> None:
    dialog = ScriptedDialog("", "0", "", "", "none", "")
    answered = asked(dialog, around())
    (sentence,) = [line for line in dialog.said if "reserve:" in line]
    assert sentence.endswith("at 20 %, $1.00 on the bill counts as $1.20.")
    assert "? At most, in USD per GPU-hour [1.00]" in dialog.said
    assert answered.first.reserve == {"vastai": Decimal(0)}


def test_a_slip_gets_a_list_to_choose_from() -> None:
    dialog = ScriptedDialog("409", "1", "", "", "", "none", "")
    where = around()
    assert asked(dialog, where).first.gpu.name == "RTX 4090"
    assert dialog.said[2].startswith("1) RTX 4090  2) RTX 4090 48GB")
    assert [names[0] for names in where.reader.read] == ["H100 SXM", "RTX 4090"]  # type: ignore[attr-defined]


def test_a_name_that_the_catalogue_lacks_is_taken_when_it_is_entered_again() -> None:
    dialog = ScriptedDialog("h10", "1", "", "", "", "none", "")
    assert asked(dialog, around()).first.gpu.name == "H100"
    assert any("not in gpuwatch's catalogue" in said for said in dialog.said)
    new = asked(ScriptedDialog("h10", "h10", "", "0.40", "", "none", ""), around()).first.gpu
    assert new.names[0] == "H10"


def test_wrong_answers_are_asked_again_with_the_reason() -> None:
    dialog = ScriptedDialog("zzzz", "h100", "x", "5", "free", "2,50", "buy", "ask", "soon", "2h", "", "none", "")
    answered = asked(dialog, around())
    assert (answered.first.max_price, answered.first.action) == (Decimal("2.50"), Action.ASK)
    assert "No GPU is called 'zzzz'; the names are in: gpuwatch docs gpu-names" in dialog.said
    assert "Expected a number from 0 to 100." in dialog.said
    assert "That is no price: expected USD per GPU-hour above 0, such as 2.50." in dialog.said
    assert "Expected alert, ask or rent." in dialog.said
    assert answered.first.max_runtime == "2h"


def test_renting_says_what_it_may_cost_and_is_a_dry_run_unless_yes() -> None:
    dialog = ScriptedDialog("", "", "2", "rent", "3h", "", "none", "")
    answered = asked(dialog, around())
    assert "At $2.00/h that is at most $6.00 a machine, one machine at a time." in dialog.said
    assert answered.first.dry_run
    text = settings_text(answered.first)
    assert "max_usd_hour = 2.00" in text
    assert 'max_runtime = "3h"' in text
    assert not asked(ScriptedDialog("", "", "2", "rent", "3h", "y", "none", "key"), around()).first.dry_run


def test_without_network_it_says_so_and_goes_on_with_recorded_prices() -> None:
    figures = PriceFigures(
        recorded=(LowPrice("vastai", Decimal("1.00"), "2026-02-27"),), faults=("vast.ai: no answer",)
    )
    dialog = ScriptedDialog("", "", "", "", "none", "")
    assert asked(dialog, around(figures)).first.max_price == Decimal("1.20")
    assert "No market answered: the questions go on with recorded prices." in dialog.said


def test_a_channel_without_its_test_message_is_asked_again() -> None:
    faults = iter(["telegram: 403 Forbidden", None])
    dialog = ScriptedDialog("", "", "", "", "pager", "", "", "", "")
    answered = asked(dialog, around(send_test=lambda _channel, _answers: next(faults)))
    assert answered.first.channels == {"telegram": PHONE}
    assert "The test message was not delivered: telegram: 403 Forbidden" in dialog.said
    assert "Expected one of: telegram, none." in dialog.said


def test_a_channel_that_is_half_set_outside_must_be_chosen() -> None:
    dialog = ScriptedDialog("", "", "", "", "none", "telegram", "")
    answered = asked(dialog, around(half_set={"telegram": ["GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN"]}))
    assert answered.first.channels == {"telegram": PHONE}
    assert any(line.startswith("GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN sets a part") for line in dialog.said)


def test_a_refused_key_is_asked_again() -> None:
    checks = {"bad": KeyCheck(True, "vast.ai refuses the key"), "good": KeyCheck(False, "vast.ai accepts the key.")}
    dialog = ScriptedDialog("", "", "", "", "none", "bad", "", "good")
    assert asked(dialog, around(check_key=lambda key: checks[key])).key == "good"


def test_what_is_set_outside_the_file_is_not_asked() -> None:
    where = around(reserve_of=None, has_key=True, own_channels=("email",))
    answered = asked(ScriptedDialog("", "", "", ""), where)
    assert answered.first.channels == {}
    assert "commission" not in settings_text(answered.first)


def test_options_of_the_command_answer_questions() -> None:
    answered = asked(ScriptedDialog("", "none", ""), around(), gpu="4090", max_price="0.40", action="alert")
    assert (answered.first.gpu.name, answered.first.max_price) == ("RTX 4090", Decimal("0.40"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"gpu": "H100"}, "--yes asks nothing"),
        ({"gpu": "H10O", "max_price": "1"}, "did you mean"),
        ({"gpu": "H100", "max_price": "free"}, "--max-price: expected USD"),
    ],
)
def test_without_a_terminal_wrong_options_are_one_line(given: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        first_watch(GivenAnswers(**given), around())


@pytest.mark.parametrize("text", ["$1.20", "1,20", " 1.2 "])
def test_prices_as_people_type_them(text: str) -> None:
    assert parse_price(text) == Decimal("1.2")


def test_what_is_no_number_is_asked_again() -> None:
    dialog = ScriptedDialog("", "nan", "5", "NaN", "inf", "2.5", "", "none", "")
    assert asked(dialog, around()).first.max_price == Decimal("2.5")


def test_a_limit_is_written_as_it_was_typed() -> None:
    dialog = ScriptedDialog("", "12.345", "1.23456", "", "none", "")
    text = settings_text(asked(dialog, around()).first)
    assert "max_price = 1.23456" in text
    assert "commission = 0.12345" in text


def test_secrets_stay_out_of_texts() -> None:
    answered = asked(ScriptedDialog("", "", "", "", "", "secret-key"), around())
    assert "secret-key" not in repr(answered)
    assert "1:x" not in repr(answered.first) + repr(PHONE) + settings_text(answered.first)
