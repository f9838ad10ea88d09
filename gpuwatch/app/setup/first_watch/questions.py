"""The questions of `gpuwatch init`. They go through a `Dialog` and write nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Protocol

import msgspec

from gpuwatch import providers
from gpuwatch.app.setup.first_watch.first_settings import DEFAULT_RUNTIME, FirstWatch, LoginKey
from gpuwatch.app.setup.first_watch.gpu_choice import GpuChoice, chosen_gpu, similar_gpus
from gpuwatch.app.setup.first_watch.price_figures import (
    PriceFigures,
    Rates,
    limit_text,
    recorded_text,
    rounded_up,
    shown,
    today_text,
)
from gpuwatch.domain.market.money import MAX_USD_HOUR, dollars
from gpuwatch.domain.setup.durations import HOUR_S, parse_duration
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import UsageError
from gpuwatch.ports.dialog import ChannelAnswers, Dialog

DEFAULT_GPU = "H100"
NO_CHANNEL = "none"
_LEAST_RUNTIME_S = 60
_ACTIONS = {"alert": Action.ALERT, "ask": Action.ASK, "rent": Action.LAUNCH, "launch": Action.LAUNCH}


class FigureReader(Protocol):
    """Prices of some cards."""

    def figures(self, names: Sequence[str]) -> PriceFigures:
        """Their prices today and on past days."""


class ChannelChoice(msgspec.Struct, frozen=True):
    """A choice for where alerts go: a channel, and its questions; `ask` returns None if the person gives up."""

    channel: str
    ask: Callable[[Dialog], ChannelAnswers | None]


class KeyCheck(msgspec.Struct, frozen=True):
    """What an account says to a key; `is_refused` False: it works, or that could not be checked."""

    is_refused: bool
    text: str


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the questions are about, and what is already set outside the new file.

    Attributes:
        rates: provider → the fraction added to its listed prices, as set now.
        reserve_of: the market whose reserve is asked; None: none has one, or it is set outside the file.
        key_of: the market whose key is asked; None: none has one. `has_key`: it is set already.
        choices: what is typed → where alerts go.
        own_channels: channels that are set outside the file.
        half_set: other channels of which a part is set outside → the variables; they must be chosen, or unset.
        send_test: sends a test message; returns why it did not arrive.
        check_key: asks the account.
        login_key: what can log in to machines.
    """

    reader: FigureReader
    rates: Rates
    rates_hosts: bool
    timezone: str
    reserve_of: str | None
    key_of: str | None
    has_key: bool
    choices: Mapping[str, ChannelChoice]
    own_channels: Sequence[str]
    half_set: Mapping[str, Sequence[str]]
    send_test: Callable[[str, ChannelAnswers], str | None]
    check_key: Callable[[str], KeyCheck]
    login_key: LoginKey = LoginKey()


class GivenAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """Answers from the command line; None: to be asked."""

    gpu: str | None = None
    max_price: str | None = None
    action: str | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The answers: the settings, and the secrets by option or provider.

    Attributes:
        key: of the market's account; empty: none was entered.
    """

    first: FirstWatch
    key: str = ""

    def __repr__(self) -> str:
        return f"Answered({self.first!r})"


def first_watch(given: GivenAnswers, around: Surroundings) -> FirstWatch:
    """The settings from the command line alone. Raises UsageError: an answer is missing or wrong."""
    if given.gpu is None or given.max_price is None:
        raise UsageError("--yes asks nothing: add --gpu and --max-price, as in --gpu H100 --max-price 2.50")
    gpu = chosen_gpu(given.gpu)
    if gpu is None:
        near = ", ".join(similar_gpus(given.gpu))
        raise UsageError(f"--gpu: no GPU is called {given.gpu!r}" + (f"; did you mean {near}?" if near else ""))
    try:
        limit = parse_price(given.max_price)
    except ValueError as error:
        raise UsageError(f"--max-price: {error}") from None
    return FirstWatch(
        gpu=gpu,
        max_price=limit,
        action=_ACTIONS[given.action or "alert"],
        reserve={} if around.reserve_of is None else {around.reserve_of: around.rates[around.reserve_of]},
        rates_hosts=around.rates_hosts,
        timezone=around.timezone,
        login_key=around.login_key,
    )


def ask_first_watch(dialog: Dialog, given: GivenAnswers, around: Surroundings) -> Answered:
    """Ask for everything that is not given."""
    gpu, figures = _ask_gpu(dialog, given.gpu, around)
    rates = _ask_reserve(dialog, figures, around)
    limit = _ask_limit(dialog, given.max_price, figures, rates)
    action = _ACTIONS[given.action] if given.action else _ask_action(dialog, limit)
    max_runtime, dry_run = DEFAULT_RUNTIME, True
    if action is not Action.ALERT:
        max_runtime, dry_run = _ask_rental(dialog, limit)
    channels = _ask_channel(dialog, around)
    key = _ask_key(dialog, around, is_needed=not dry_run)
    first = FirstWatch(
        gpu=gpu,
        max_price=limit,
        action=action,
        dry_run=dry_run,
        max_runtime=max_runtime,
        reserve={} if around.reserve_of is None else {around.reserve_of: rates[around.reserve_of]},
        rates_hosts=around.rates_hosts,
        timezone=around.timezone,
        login_key=around.login_key,
        channels=channels,
    )
    return Answered(first=first, key=key)


# --- 1: which GPU -----------------------------------------------------------------------------------------------------


def _ask_gpu(dialog: Dialog, given: str | None, around: Surroundings) -> tuple[GpuChoice, PriceFigures]:
    default = chosen_gpu(DEFAULT_GPU)
    assert default is not None
    choice = chosen_gpu(given) if given else None
    figures = _read(dialog, choice or default, around)
    if choice is None:
        now = today_text(figures, around.rates, _titles())
        dialog.say(f"1/5  Which GPU? Any spelling: 4090, a100 80gb, h200 …  {default.name}: {now}.")
        choice = _named_gpu(dialog, given, default.name)
        if choice != default:
            figures = _read(dialog, choice, around)
    if given or choice != default:
        dialog.say(f"{choice.name}: {today_text(figures, around.rates, _titles())}.")
    if text := recorded_text(figures, around.rates):
        dialog.say(f"{text[:1].upper()}{text[1:]}.")
    for fault in figures.faults:
        dialog.say(f"{fault}")
    if figures.faults and not figures.today:
        dialog.say("No market answered: the questions go on with recorded prices.")
    return choice, figures


def _named_gpu(dialog: Dialog, text: str | None, default: str) -> GpuChoice:
    """Ask until a card is named; a part of a name, or a slip, gets a numbered list."""
    near: Sequence[str] = ()
    repeated = ""
    text = text or dialog.ask("GPU", default)
    while True:
        picked = near[int(text) - 1] if text.isdecimal() and 1 <= int(text) <= len(near) else text
        choice, near = chosen_gpu(picked), similar_gpus(text)
        if choice is not None and (choice.is_listed or picked == repeated or not near):
            return choice
        repeated = picked
        if choice is not None:
            dialog.say(f"{choice.name} is not in gpuwatch's catalogue; if it is a new card, enter it again.")
        if not near:
            dialog.say(f"No GPU is called {text!r}; the names are in: gpuwatch docs gpu-names")
            text = dialog.ask("GPU", default)
            continue
        dialog.say("" + "  ".join(f"{number}) {name}" for number, name in enumerate(near, 1)))
        text = dialog.ask("Number or name", "1")


def _read(dialog: Dialog, gpu: GpuChoice, around: Surroundings) -> PriceFigures:
    with dialog.waiting(f"reading today's prices of {gpu.name}"):
        return around.reader.figures(gpu.names)


# --- 2: at most how much ----------------------------------------------------------------------------------------------


def _ask_reserve(dialog: Dialog, figures: PriceFigures, around: Surroundings) -> Rates:
    name = around.reserve_of
    if name is None:
        return around.rates
    low = next((low.usd_gpu_hour for low in figures.today if low.provider == name), Decimal(1))
    rate, title = around.rates[name], _titles()[name]
    dialog.say(
        f"2/5  Limits compare the bill of {title} plus a planning reserve: at {_percent(rate)} %,"
        f" {shown(low)} on the bill counts as {shown(low * (1 + rate))}."
    )
    while True:
        text = dialog.ask("Planning reserve in percent", _percent(rate))
        try:
            percent = Decimal(text.strip(" %").replace(",", "."))
        except InvalidOperation:
            percent = Decimal(-1)
        if percent.is_finite() and 0 <= percent <= 100:
            return {**around.rates, name: percent / 100}
        dialog.say("Expected a number from 0 to 100.")


def _percent(rate: Decimal) -> str:
    return f"{(rate * 100).normalize():f}"


def _ask_limit(dialog: Dialog, given: str | None, figures: PriceFigures, rates: Rates) -> Decimal:
    suggested = figures.suggested(rates)
    if suggested is not None and given is None:
        text = limit_text(figures, suggested, rates)
        dialog.say(f"At most how much for an hour of one GPU, reserve included? ${suggested}: {text}.")
    while True:
        text = given or dialog.ask("At most, in USD per GPU-hour", "" if suggested is None else str(suggested))
        given = None
        try:
            limit = parse_price(text)
        except ValueError as error:
            dialog.say(f"That is no price: {error}.")
            continue
        if limit != suggested and (meaning := limit_text(figures, limit, rates)):
            dialog.say(f"{shown(limit)}: {meaning}.")
        return limit


def parse_price(text: str) -> Decimal:
    """A limit: "$1.20", "1,20", "1.2". Raises ValueError: what was expected."""
    try:
        price = Decimal(text.strip(" $").replace(",", "."))
    except InvalidOperation:
        price = Decimal(0)
    if not (price.is_finite() and 0 < price <= Decimal(str(MAX_USD_HOUR))):
        raise ValueError("expected USD per GPU-hour above 0, such as 2.50")
    return price


# --- 3: what then -----------------------------------------------------------------------------------------------------


def _ask_action(dialog: Dialog, limit: Decimal) -> Action:
    cost = _cost_text(limit, parse_duration(DEFAULT_RUNTIME))
    dialog.say(
        "3/5  What then? alert: a message to you · ask: it rents what you approve · rent: it rents by itself, once"
        f" ({DEFAULT_RUNTIME} cost at most {cost})."
    )
    while (text := dialog.ask("alert, ask or rent", "alert").lower()) not in _ACTIONS:
        dialog.say("Expected alert, ask or rent.")
    return _ACTIONS[text]


def _ask_rental(dialog: Dialog, limit: Decimal) -> tuple[str, bool]:
    """For how long at most, and whether it is a dry run."""
    while True:
        text = dialog.ask("For how long at most? Then the machine is destroyed", DEFAULT_RUNTIME)
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            dialog.say(f"{error}.".capitalize())
            continue
        if seconds >= _LEAST_RUNTIME_S:
            break
        dialog.say("Expected at least a minute.")
    cost = _cost_text(limit, seconds)
    dialog.say(f"At {shown(limit)}/h that is at most {cost} a machine, one machine at a time.")
    is_real = dialog.confirm("Spend real money (no: a dry run, which only reports)", default=False)
    return text, not is_real


def _cost_text(limit: Decimal, seconds: float) -> str:
    return dollars(rounded_up(limit * Decimal(str(seconds)) / HOUR_S))


# --- 4 and 5: where to, and which key ---------------------------------------------------------------------------------


def _ask_channel(dialog: Dialog, around: Surroundings) -> Mapping[str, ChannelAnswers]:
    """One channel, after a test message arrived; none, if the person wants none."""
    own = f" {', '.join(around.own_channels)}: set in the environment." if around.own_channels else ""
    names = [*around.choices, NO_CHANNEL]
    dialog.say(f"4/5  Where shall alerts go? {' · '.join(names)}.{own}")
    default = NO_CHANNEL if around.own_channels else names[0]
    while True:
        text = dialog.ask("Channel", default).lower()
        chosen = around.choices[text].channel if text in around.choices else ""
        if left := next((name for name in around.half_set if text in names and name != chosen), None):
            variables = ", ".join(around.half_set[left])
            dialog.say(f"{variables} sets a part of {left}: choose a channel of it, or end here and unset that.")
            continue
        if text == NO_CHANNEL:
            if not around.own_channels:
                dialog.say("Alerts then stand in the log of gpuwatch run alone.")
            return {}
        if (choice := around.choices.get(text)) is None:
            dialog.say(f"Expected one of: {', '.join(names)}.")
            continue
        answers = choice.ask(dialog)
        if answers is not None and _has_arrived(dialog, choice.channel, answers, around):
            return {choice.channel: answers}


def _has_arrived(dialog: Dialog, channel: str, answers: ChannelAnswers, around: Surroundings) -> bool:
    """Whether the test message arrived, or the person keeps the channel anyway."""
    with dialog.waiting("sending a test message"):
        fault = around.send_test(channel, answers)
    if fault is None:
        dialog.say("A test message is on its way to you.")
        return True
    dialog.say(f"The test message was not delivered: {fault}")
    return dialog.confirm("Keep this channel anyway", default=False)


def _ask_key(dialog: Dialog, around: Surroundings, *, is_needed: bool) -> str:
    if around.key_of is None:
        return ""
    title = _titles()[around.key_of]
    if around.has_key:
        dialog.say(f"5/5  The key of {title} is set already.")
        return ""
    dialog.say(f"5/5  Key of {title}: renting needs it, reading prices does not.")
    while True:
        key = dialog.ask_secret(f"API key of {title} (not shown; Enter: none)")
        if not key:
            if is_needed:
                dialog.say("Without it nothing is rented until you set it.")
            return ""
        with dialog.waiting(f"asking {title}"):
            check = around.check_key(key)
        dialog.say(f"{check.text}")
        if not check.is_refused or dialog.confirm("Keep this key anyway", default=False):
            return key


def _titles() -> Mapping[str, str]:
    return {name: providers.info(name).title for name in providers.names()}
