"""The first steps on the page: a watch with today's prices, a provider's key, where alerts go.

They write the same files as `gpuwatch init`, and only what is not set yet: what is there is changed in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch import notifiers, providers
from gpuwatch.app.market.current_offers import current_offers
from gpuwatch.app.setup.first_watch.env_file import add_to_env_file
from gpuwatch.app.setup.first_watch.first_settings import MIN_RELIABILITY, channel_lines
from gpuwatch.app.setup.first_watch.gpu_choice import chosen_gpu
from gpuwatch.app.setup.first_watch.market_reader import all_rate_hosts, public_lows
from gpuwatch.app.setup.first_watch.price_figures import rounded_up
from gpuwatch.app.setup.first_watch.questions import parse_price
from gpuwatch.app.setup.first_watch.setting_up import check_key, send_channel_test
from gpuwatch.app.watches.edit_watch import draft_watch, save_draft
from gpuwatch.atomic_file import atomic_file
from gpuwatch.bootstrap import http_client, open_store_read_only
from gpuwatch.domain.history.past_lows import MIN_HOURS, WINDOW_DAYS
from gpuwatch.domain.market.money import MICRO
from gpuwatch.engine.market.browse import OfferFilter
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.ports.dialog import ChannelAnswers
from gpuwatch.ports.settings import Option
from gpuwatch.settings import load_draft
from gpuwatch.settings.plugin_options import variable_of
from gpuwatch.settings.sources import collect
from gpuwatch.storage.history.queries.history_queries import SqlHourlyLows

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

PRESETS = ("H100", "A100 80GB", "RTX 4090")
CHANNELS = ("ntfy", "telegram", "mail")
_ALREADY = "it is set already; change it in the settings file"


class GpuPreset(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU to begin with.

    Attributes:
        now_microusd: its cheapest offer now, commission included; None: none is known.
        limit: the first quartile of its recorded lowest prices, rounded up to a cent; None: nothing is recorded.
        is_own: they are of the own history, not the public prices that come with gpuwatch.
    """

    name: str
    now_microusd: int | None
    limit: Decimal | None
    is_own: bool


def gpu_presets(settings: Settings, now: datetime) -> list[GpuPreset]:
    """The cards to begin with, with their prices from the store. Raises StoreError."""
    return [_preset(settings, name, now) for name in PRESETS]


def _preset(settings: Settings, name: str, now: datetime) -> GpuPreset:
    gpu = chosen_gpu(name)
    assert gpu is not None
    matches = current_offers(settings, OfferFilter(gpu_names=gpu.names)).matches
    cheapest = min((match.price_microusd_gpu_hour for match in matches), default=None)
    own = _own_lows(settings, gpu.names, now)
    lows = own or _public_lows(settings, gpu.names)
    return GpuPreset(
        name=name,
        now_microusd=None if cheapest is None else round(cheapest),
        limit=rounded_up(lows[(len(lows) - 1) // 4]) if lows else None,
        is_own=bool(own),
    )


def _own_lows(settings: Settings, names: tuple[str, ...], now: datetime) -> list[Decimal]:
    """The lowest price of each recorded hour, ascending; none if too few are known."""
    by_hour: dict[int, Decimal] = {}
    with open_store_read_only(settings) as store:
        reader = SqlHourlyLows(store, list(settings.providers))
        found = reader.hourly_lows(names, now - timedelta(days=WINDOW_DAYS), now)
    for (provider, _kind, _gpu, is_spot), lows in found.items():
        if not is_spot:
            factor = 1 + _rate(settings, provider)
            for hour, low in zip(lows.hours, lows.lows, strict=True):
                price = Decimal(low) / MICRO * factor
                by_hour[hour] = min(price, by_hour.get(hour, price))
    return sorted(by_hour.values()) if len(by_hour) >= MIN_HOURS else []


def _public_lows(settings: Settings, names: tuple[str, ...]) -> list[Decimal]:
    return sorted(low.usd_gpu_hour * (1 + _rate(settings, low.provider)) for low in public_lows(names))


def _rate(settings: Settings, provider: str) -> Decimal:
    known = settings.providers.get(provider)
    commission = providers.info(provider).commission if known is None else known.commission
    return Decimal(commission.on_top_rate(None))


# --- what they write --------------------------------------------------------------------------------------------------


def write_first_alert(config: str | None, settings: Settings, gpu: str, max_price: str) -> str:
    """Add a watch that alerts; return its name.

    Raises:
        UsageError: there is a watch already, or the GPU or the price is wrong.
        GpuwatchError: the file cannot be written.
    """
    if settings.watches or settings.left_out:
        raise UsageError("there is a watch already; add another one on the page Watches")
    choice = chosen_gpu(gpu)
    if choice is None:
        raise UsageError(f"no GPU is called {gpu[:40]!r}")
    try:
        limit = parse_price(max_price)
    except ValueError as error:
        raise UsageError(f"{error}") from None
    values = {"name": choice.watch_name, "gpu": choice.name, "max_price": f"{limit}", "repeat_every": "6h"}
    values["action"] = "alert"  # whatever the defaults of the file say
    if all_rate_hosts(settings):
        values |= {"verified": "true", "min_reliability": f"{MIN_RELIABILITY}"}
    draft = draft_watch(config, None, values)
    save_draft(draft, draft.version)
    return choice.watch_name


def key_provider(settings: Settings) -> str | None:
    """The provider whose key is asked for: the first enabled one that has none; None: none lacks one."""
    lacking = (name for name, one in settings.providers.items() if one.api_key is None)
    return next((name for name in lacking if providers.info(name).on_by_default), None)


def write_key(config: str | None, settings: Settings, key: str) -> str:
    """Store a provider's key in `.env`, unless its account refuses it; return what the account says.

    Raises:
        UsageError: it is set already, is empty, or is refused.
        GpuwatchError: the file cannot be written.
    """
    name, file = key_provider(settings), _file(config)
    if name is None:
        raise UsageError(f"the key: {_ALREADY}")
    if not key.strip() or not key.isprintable():
        raise UsageError("paste the key")
    with http_client(settings) as http:
        check = check_key(file, http, name, key.strip())
    if check.is_refused:
        raise UsageError(check.text)
    add_to_env_file(file.parent / ".env", {providers.info(name).key_names[0]: key.strip()})
    return check.text


def write_channel(config: str | None, settings: Settings, name: str, typed: Mapping[str, str]) -> str:
    """Add a channel after a test message arrived there; return its title.

    Args:
        name: one of `CHANNELS`.
        typed: the values of its fields.

    Raises:
        UsageError: one is set already, something is missing, or the test message was not delivered.
        GpuwatchError: the file cannot be written.
    """
    if settings.channels:
        raise UsageError(f"a channel: {_ALREADY}")
    channel, answers = _answers(name, typed)
    file = _file(config)
    lines = "\n".join(channel_lines(channel, answers))
    content = f"{file.read_text(encoding='utf-8-sig').rstrip()}\n\n{lines}\n".encode()
    variables = {variable_of(("notify", channel, option)): text for option, text in answers.secrets.items()}
    load_draft(file, content, variables)
    with http_client(settings) as http:
        fault = send_channel_test(file, http, channel, answers)
    if fault is not None:
        raise UsageError(f"the test message was not delivered: {fault}")
    if variables:
        add_to_env_file(file.parent / ".env", variables)
    try:
        with atomic_file(file.resolve(), mode=file.stat().st_mode & 0o777, is_durable=True) as part:
            part.write_bytes(content)
    except OSError as error:
        raise GpuwatchError(f"cannot write {file}: {error.strerror}") from None
    return notifiers.info(channel).title


def _answers(name: str, typed: Mapping[str, str]) -> tuple[str, ChannelAnswers]:
    def given(field: str) -> str:
        text = typed.get(field, "").strip()
        if not text or not text.isprintable():
            raise UsageError("fill in every field")
        return text

    if name == "ntfy":
        topic = given("topic").replace("https://", "ntfys://", 1).replace("http://", "ntfy://", 1)
        address = topic if "://" in topic else f"ntfys://{topic}"
        return "apprise", ChannelAnswers(secrets={"urls": msgspec.json.encode([address]).decode()})
    if name == "telegram":
        return "telegram", ChannelAnswers(
            values={"chat_id": given("chat_id")}, secrets={"bot_token": given("bot_token")}
        )
    if name == "mail":
        recipients = tuple(part.strip() for part in given("recipients").split(",") if part.strip())
        values: dict[str, Option] = {"host": given("host"), "sender": given("sender"), "recipients": recipients}
        return "email", ChannelAnswers(values=values)
    raise UsageError(f"expected one of {', '.join(CHANNELS)}")


def _file(config: str | None) -> Path:
    file = collect(config).file
    if file is None:
        raise UsageError("there is no settings file to write; create one with: gpuwatch init")
    return file
