"""The short gpuwatch.toml that `gpuwatch init` writes: a comment on each line. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from gpuwatch.app.setup.first_watch.gpu_choice import GpuChoice
from gpuwatch.domain.market.money import price_text
from gpuwatch.domain.watches.watch import Action
from gpuwatch.ports.dialog import ChannelAnswers
from gpuwatch.ports.settings import Option

_COMMENT_AT = 32
_HEAD = """\
#:schema ./gpuwatch.schema.json
# Written by gpuwatch init. All settings with their defaults: gpuwatch init --full, or gpuwatch docs settings.
"""
DEFAULT_RUNTIME = "4h"
MIN_RELIABILITY = 0.95


class LoginKey(msgspec.Struct, frozen=True, kw_only=True):
    """The private key with which the daemon can log in to a machine; no path: why there is none."""

    path: str = ""
    why_not: str = ""


class FirstWatch(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings are about: one watch, where alerts go, and what it may spend.

    Attributes:
        max_price: USD per GPU-hour, reserve included.
        reserve: provider → the fraction added to its listed prices.
        rates_hosts: the markets say which hosts are verified, so that others are left out.
        channels: `[notify.NAME]` → what was entered.
        login_key: with it a machine is checked by logging in, before it counts as running.
    """

    gpu: GpuChoice
    max_price: Decimal
    action: Action = Action.ALERT
    dry_run: bool = True
    max_runtime: str = DEFAULT_RUNTIME
    reserve: Mapping[str, Decimal] = {}
    rates_hosts: bool = True
    timezone: str = "UTC"
    channels: Mapping[str, ChannelAnswers] = {}
    login_key: LoginKey = LoginKey()

    def __repr__(self) -> str:
        return f"FirstWatch({self.gpu.name!r}, {self.max_price}, {self.action.value})"

    @property
    def rents(self) -> bool:
        """With or without an approval."""
        return self.action is not Action.ALERT


def settings_text(first: FirstWatch) -> str:
    """The whole file."""
    return _HEAD + "".join(f"{line}\n" for line in _lines(first))


def _lines(first: FirstWatch) -> Iterator[str]:
    yield ""
    yield _line("timezone", first.timezone, "of screens and times of day")
    yield _line("dry_run", first.dry_run, "true: gpuwatch reports what it would rent, and rents nothing")
    if first.rents:
        yield from ("", "[budget]")
        yield _line("max_usd_hour", first.max_price, "all instances together; a launch beyond it is refused")
        yield _line("max_instances", 1, "active at the same time")
    for name, rate in first.reserve.items():
        yield from ("", f"[providers.{name}]")
        yield _line("commission", rate, f"planning reserve: $1.00 on the bill is compared as ${price_text(1 + rate)}")
    for name, answers in first.channels.items():
        yield from ("", *channel_lines(name, answers))
    yield from _watch(first)


def channel_lines(name: str, answers: ChannelAnswers) -> Iterator[str]:
    """`[notify.NAME]`, without its secrets."""
    rows = list(answers.values.items())
    if not rows:
        yield f"# [notify.{name}]: its address is a secret, in .env"
        return
    yield f"[notify.{name}]"
    for number, (key, value) in enumerate(rows):
        secret = f"{', '.join(answers.secrets)}: in .env" if answers.secrets else "alerts go there"
        yield _line(key, _plain(value), secret if not number else "")


def _watch(first: FirstWatch) -> Iterator[str]:
    yield from ("", "[[watch]]")
    yield _line("name", first.gpu.watch_name, "in alerts and commands")
    yield _line("gpu", first.gpu.name, "family or card, one or a list; any spelling")
    yield _line("max_price", first.max_price, "USD per hour of one GPU, reserve included; at or under it fires")
    yield _line("action", first.action.value, '"alert", "ask" (you approve each rental) or "launch" (rents by itself)')
    if first.rates_hosts:
        yield _line("verified", True, "hosts that the marketplace has verified")
        yield _line("min_reliability", Decimal(str(MIN_RELIABILITY)), "0 to 1, as the marketplace measures it")
    yield _line("repeat_every", "6h", "reminds you no more often")
    if first.rents:
        yield _line("max_per_day", 3, "launches a day (UTC), failed ones included")
        yield from ("", "[watch.launch]")
        yield _line("max_runtime", first.max_runtime, "then the instance is destroyed")
        yield from _verification(first.login_key)


def _verification(key: LoginKey) -> Iterator[str]:
    if key.path:
        yield _line("verify", "ssh", "it is measured by logging in, before it counts as running")
        yield _line("ssh_key", key.path, "its public half must be in your account there")
    elif key.why_not:
        unset = '# verify = "ssh"'.ljust(_COMMENT_AT)
        yield f"{unset}# would log in to measure it; not set: {key.why_not}"


def _line(key: str, value: Any, comment: str) -> str:
    text = f"{key} = {_toml(value)}"
    return f"{text.ljust(_COMMENT_AT)}# {comment}" if comment else text


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return price_text(value, most=6)  # as typed: a rounded limit would be another one
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Option) -> Any:
    """Ids as numbers, as their owner knows them."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    is_number = isinstance(value, str) and value.removeprefix("-").isdecimal()
    return int(value) if isinstance(value, str) and is_number else value
