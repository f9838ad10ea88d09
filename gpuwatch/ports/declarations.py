"""One provider: what is known of it before anything is asked, and the adapter that asks it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.market.pricing import Commission
from gpuwatch.ports import Launcher, Market, Now
from gpuwatch.ports.settings import Option

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """How time becomes money there. source: each provider's document."""

    minimum_s: float = 0.0  # the least that is billed
    step_s: float = 0.0  # billed in whole steps: 60 is by the minute; 0: as long as it takes
    prepaid: bool = False  # from a balance that must be there before


class OptionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One key of `[providers.NAME.options]`, or of a plugin's `[notify.NAME]`."""

    name: str
    kind: Literal["text", "number", "switch", "texts"]
    about: str  # one line, for `config schema` and the documents
    default: Option = None
    choices: tuple[str, ...] = ()  # for texts: the only ones that are taken
    least: float | None = None  # for numbers
    secret: bool = False
    needed: bool = False  # a fault if it is not set and its provider or channel is on
    check: Callable[[Option], None] | None = None  # what else a given value must be; raises ValueError with one line


def web_address(value: Option) -> None:
    """For `OptionSpec.check`: something that can be asked. Raises ValueError."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
        raise ValueError("expected an http(s) address")


class ProviderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a provider before anything is asked; settings take their defaults from here."""

    name: str
    title: str  # as its owners write it
    base_url: str
    commission: Commission = Commission()
    key_names: tuple[str, ...] = ()  # environment variables that the ecosystem uses for its key
    on_by_default: bool = False
    only_if_enabled: bool = False  # a key or a section alone does not switch it on: `enabled = true` does
    searches_without_key: bool = False
    launches: bool = False  # gpuwatch can rent there
    runs_images: bool = True  # False: it starts virtual machines; `image` names none of theirs
    kinds: tuple[OfferKind, ...] = (OfferKind.LIVE,)  # of price that it gives
    spots: tuple[bool, ...] = (False,)  # rental types that it has: (False, True) is on demand and spot
    billing: Billing = Billing()
    own_credentials: str | None = None  # "the AWS credential chain": where they come from, if not from `api_key`
    extra: str | None = None  # gpuwatch[EXTRA] must be installed
    options: tuple[OptionSpec, ...] = ()
    default_disk_gb: float = 0.0  # what a quote includes if no disk is asked for
    poll_every_s: float = 30.0
    search_interval_s: float = 6.0
    rows_per_day: int = 0  # 0: no quota
    console_url: str | None = None  # where a person rents by hand
    key_rights: Mapping[str, str] = {}  # its names for what a key may do: "list", "rent", "credit", "charges"


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """One provider, ready to be asked. `launcher` None: gpuwatch cannot rent there."""

    name: str
    info: ProviderInfo
    market: Market
    launcher: Launcher | None = None


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What every adapter needs from outside; `stop` ends its waiting."""

    http: HttpClient
    now: Now
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]  # for the waits between retries
    stop: threading.Event
