"""What a provider or an alert channel declares: its name, its settings, its lines for `gpuwatch init`.

Settings, secrets, the JSON Schema, `init`, `doctor` and the help read these declarations. No other file names a
provider or a channel.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from gpuwatch.domain.launches.instance import LABEL_LENGTH
from gpuwatch.domain.market.money import Commission, price_text, usd
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import Launcher, Market, Now, ProviderSettings
from gpuwatch.ports.dialog import ChannelSetup
from gpuwatch.ports.findings import Finding
from gpuwatch.ports.market import HoldStore, SearchTurns
from gpuwatch.ports.prerequisites import PrerequisiteSpec
from gpuwatch.ports.settings import ChannelSettings, Option

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider bills time. Source: each provider's documentation."""

    minimum_s: float = 0.0  # minimum billed time
    step_s: float = 0.0  # billing granularity: 60 is per minute; 0: per second
    prepaid: bool = False  # deducted from a prepaid balance


class SelfDestruct(msgspec.Struct, frozen=True, kw_only=True):
    """What `self_destruct` does at a provider, and what is billed afterwards. Source: each provider's documentation."""

    how: str  # a clause, such as "a timer on the machine shuts it down"
    needs_onstart: bool = False  # it is prepended to a start script
    leaves_disk: bool = False  # the disk is billed until the machine is deleted
    may_leave_all: bool = False  # it is not documented whether the rest is billed as well
    is_movable: bool = False  # the provider ends it at a time that its API can move: the launcher is an `EndMover`

    def text(self, disk_microusd_hour: int, price_microusd_hour: int) -> str:
        """A sentence on how it works, and what each hour costs afterwards."""
        if not self.leaves_disk:
            return f"{self.how}; billing stops"
        disk, price = (f"${price_text(usd(one))}" for one in (disk_microusd_hour, price_microusd_hour))
        most = f", or up to its full price of {price} (not documented)," if self.may_leave_all else ""
        return f"{self.how}; afterwards its disk costs {disk}{most} an hour until it is deleted"


class OptionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One key of `[providers.NAME.options]` or of `[notify.NAME]`.

    `kind`: id is text, or a whole number as digits; ids are whole numbers; templates are texts by alert kind.
    """

    name: str
    kind: Literal[
        "text", "id", "ids", "number", "integer", "switch", "texts", "templates"
    ]  # id: text, or a whole number as digits
    about: str  # one line for `config schema` and the documentation
    default: Option = None
    choices: tuple[str, ...] = ()  # for text: the accepted values
    least: float | None = None  # minimum of a number
    most: float | None = None
    secret: bool = False
    needed: bool = False  # required if its provider or channel is enabled
    is_url: bool = False  # secrets are sent there: plain http causes a warning
    parse: Callable[[object], Option] | None = None  # parses the raw value instead of `kind`; raises ValueError
    check: Callable[[Option], None] | None = (
        None  # additional validation of a given value; raises ValueError with one line
    )


class ChannelInfo(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What an alert channel declares. `check` validates all values together and raises ValueError with one line."""

    name: str
    title: str  # in the vendor's spelling
    options: tuple[OptionSpec, ...] = ()  # the keys of `[notify.NAME]`
    check: Callable[[Mapping[str, Option]], None] | None = None
    extra: str | None = None  # required extra
    template: str = ""  # commented lines of `gpuwatch init --full` below `[notify.NAME]`; empty: made from `options`
    docs: str | None = None  # page and heading of its documentation: "alerts.md#telegram"
    setups: tuple[ChannelSetup, ...] = ()  # choices of `gpuwatch init`
    doctor: Callable[[ChannelSettings, HttpClient], Iterable[Finding]] | None = (
        None  # additional checks; sends no alert
    )


class ProviderInfo(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a provider declares; the settings take their defaults from it."""

    name: str
    title: str  # in the vendor's spelling
    base_url: str
    commission: Commission = Commission()
    key_names: tuple[str, ...] = ()  # environment variables that the ecosystem uses for its key
    on_by_default: bool = False
    searches_without_key: bool = False
    launches: bool = False  # gpuwatch can rent there
    no_lookup: str = ""  # one line: why its launcher is not an `InstanceLookup`; empty: it is one
    no_kept_disk: str = "gpuwatch does not stop machines there"  # one line: why it is no `DiskKeeper`; empty: it is one
    no_kept_spot_disk: str = ""  # one line: why a `DiskKeeper` cannot stop spot machines; empty: it can
    keeps_volumes_only: str = ""  # one line: why a `DiskKeeper` keeps volumes alone; empty: it keeps disks
    runs_images: bool = True  # False: it starts virtual machines and ignores `image`
    image_runtype: str = ""  # of virtual machines: the one runtype with which `image` runs there
    runs_onstart: bool = True  # False: an order cannot contain commands, so jobs cannot install their SSH key
    kinds: tuple[OfferKind, ...] = (OfferKind.LIVE,)  # kinds of prices it offers
    sells_cpu_machines: bool = False  # also machines without GPUs, see `Query.wants_no_gpu`
    spots: tuple[bool, ...] = (False,)  # rental types it offers: (False, True) means on demand and spot
    billing: Billing = Billing()
    self_destruct: SelfDestruct | None = None  # None: an order with it is refused
    takes_bids: bool = False  # whoever bids more for a spot machine gets it: its price is the lowest winning bid
    has_imds: bool = False  # a spot machine reads its own interruption notice from EC2's metadata service (IMDSv2)
    own_credentials: str | None = None  # source of credentials other than `api_key`: "the AWS credential chain"
    extra: str | None = None  # required extra
    options: tuple[OptionSpec, ...] = ()
    label_length: int = LABEL_LENGTH  # maximum length of an instance's label, name or tag
    row_name: str = "plan"  # what a row of its list is called: "7 plans not understood"
    rates_hosts: bool = False  # its offers state whether the host is verified, and how reliable it is
    default_disk_gb: float = 0.0  # disk included in a quote by default
    poll_every_s: float = 30.0
    search_interval_s: float = 6.0
    rows_per_day: int = 0  # 0: no quota
    joins_gpus: bool = False  # one search may name several GPUs, so queries of several watches can be merged
    console_url: str | None = None  # where a person rents manually
    prerequisites: tuple[PrerequisiteSpec, ...] = ()  # requirements before the first launch
    key_rights: Mapping[str, str] = {}  # its names of key permissions: "list", "rent", "credit", "charges"
    template: str = ""  # its section of `gpuwatch init --full`, including the heading; empty: not in the template
    docs: str | None = None  # page of its documentation; None: providers/NAME.md
    doctor: Callable[[ProviderSettings, HttpClient], Iterable[Finding]] | None = None  # additional checks; read only

    def runs_image(self, runtype: str) -> bool:
        """Whether `launch.image` runs there with this runtype."""
        return self.runs_images or (bool(runtype) and runtype == self.image_runtype)

    def cannot_keep_disk(self, *, is_spot: bool, has_volume: bool) -> str:
        """Why a machine cannot be stopped there with its disk kept, in one line; empty: it can."""
        reason = self.no_kept_disk or (self.no_kept_spot_disk if is_spot else "")
        return reason or ("" if has_volume else self.keeps_volumes_only)


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """One provider, ready for requests. `launcher` None: gpuwatch cannot rent there."""

    name: str
    info: ProviderInfo
    market: Market
    launcher: Launcher | None = None


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of every adapter; `stop` ends its waits."""

    http: HttpClient
    now: Now
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]  # waits between retries
    stop: threading.Event
    holds: HoldStore | None = None  # stores holds over a restart; None: they are not stored
    turns: Mapping[str, SearchTurns] = {}  # by provider; one without an entry is searched at this process's own pace
    is_patient: bool = True  # False: a person is waiting; an unreachable server is tried only once


def web_address(value: Option) -> None:
    """For `OptionSpec.check`: an http(s) address. Raises ValueError."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
        raise ValueError("expected an http(s) address")
