"""What adapters and channels get from the settings. Secrets never show in a repr."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.domain.market.pricing import Commission
from gpuwatch.ports.alerts import Severity

Option = str | int | float | bool | tuple[str, ...] | dict[str, str] | None


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[providers.NAME]`, as the adapter gets it. `api_key` is a secret: never logged, shown or stored."""

    name: str
    base_url: str
    api_key: str | None = None
    previous_api_key: str | None = None  # a secret, too: follows and ends what is left under it, rents nothing
    commission: Commission = Commission()
    poll_every_s: float = 30.0
    sweep_every_s: float | None = None  # None: "auto", as the row quota allows
    search_interval_s: float = 6.0  # the least time between two searches
    rows_per_day: int = 20_000  # 0: no quota
    timeout_s: float = 30.0
    options: Mapping[str, Option] = {}  # `[providers.NAME.options]`: what this provider alone knows, complete

    def __repr__(self) -> str:
        return f"ProviderSettings({self.name!r}, {self.base_url!r})"


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[notify.NAME]`; `options` complete with defaults. May hold secrets.

    `min_severity`: what is below comes without a sound, or not at all where the channel cannot be silent.
    """

    name: str
    options: Mapping[str, Option] = {}
    min_severity: Severity = Severity.INFO

    def __repr__(self) -> str:
        return f"ChannelSettings({self.name!r})"
