"""The settings that adapters and channels receive."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.domain.market.pricing import Commission
from gpuwatch.ports.alerts import Severity
from gpuwatch.secret import Secret

Option = str | int | float | bool | tuple[str, ...] | dict[str, str] | None


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[providers.NAME]` for its adapter."""

    name: str
    base_url: str
    api_key: Secret | None = None
    previous_api_key: Secret | None = None  # follows and ends launches under it, rents nothing
    commission: Commission = Commission()
    poll_every_s: float = 30.0
    sweep_every_s: float | None = None  # None: "auto", as the row quota allows
    search_interval_s: float = 6.0  # minimum interval between two searches
    rows_per_day: int = 20_000  # 0: no quota
    timeout_s: float = 30.0
    options: Mapping[str, Option] = {}  # `[providers.NAME.options]` of this provider, with defaults
    secrets: Mapping[str, Secret] = {}  # the secret ones that are set

    def __repr__(self) -> str:
        return f"ProviderSettings({self.name!r}, {self.base_url!r})"


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[notify.NAME]`.

    `min_severity`: alerts below it are delivered silently, or not at all if the channel cannot do that.
    """

    name: str
    options: Mapping[str, Option] = {}  # with defaults
    secrets: Mapping[str, Secret] = {}  # the secret ones that are set
    min_severity: Severity = Severity.INFO

    def __repr__(self) -> str:
        return f"ChannelSettings({self.name!r})"
