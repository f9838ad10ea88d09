"""The settings of a provider and of a channel: as they are configured, and as their adapter receives them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.domain.alerts.alert import Severity
from gpuwatch.domain.market.money import Commission
from gpuwatch.secret import Secret

Option = str | int | float | bool | tuple[str, ...] | dict[str, str] | None


class ProviderTerms(msgspec.Struct, frozen=True, kw_only=True):
    """One `[providers.NAME]`, without its secrets."""

    name: str
    base_url: str
    commission: Commission = Commission()
    poll_every_s: float = 30.0
    sweep_every_s: float | None = None  # None: "auto", as the row quota allows
    search_interval_s: float = 6.0  # minimum interval between two searches
    rows_per_day: int = 20_000  # 0: no quota
    timeout_s: float = 30.0
    options: Mapping[str, Option] = {}  # `[providers.NAME.options]` of this provider, with defaults

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.base_url!r})"


class ProviderSettings(ProviderTerms, frozen=True, kw_only=True):
    """One `[providers.NAME]` for its adapter. `api_key` and some options are secrets: never logged, shown or stored."""

    api_key: str | None = None
    previous_api_key: str | None = None  # also a secret: follows and ends launches under it, rents nothing

    __repr__ = ProviderTerms.__repr__


class ProviderSection(ProviderTerms, frozen=True, kw_only=True):
    """One `[providers.NAME]` of the settings: its secrets are references."""

    api_key: Secret | None = None
    previous_api_key: Secret | None = None
    secrets: Mapping[str, Secret] = {}  # the secret options that are set

    __repr__ = ProviderTerms.__repr__

    def revealed(self) -> ProviderSettings:
        """The same with the texts of its secrets, for the adapter that is built now."""
        terms = {name: getattr(self, name) for name in ProviderTerms.__struct_fields__}
        return ProviderSettings(
            **terms | {"options": _revealed(self.options, self.secrets)},
            api_key=None if self.api_key is None else self.api_key.reveal(),
            previous_api_key=None if self.previous_api_key is None else self.previous_api_key.reveal(),
        )


class ChannelTerms(msgspec.Struct, frozen=True, kw_only=True):
    """One `[notify.NAME]`, without its secrets.

    `min_severity`: alerts below it are delivered silently, or not at all if the channel cannot do that.
    """

    name: str
    options: Mapping[str, Option] = {}  # with defaults
    min_severity: Severity = Severity.INFO

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ChannelSettings(ChannelTerms, frozen=True, kw_only=True):
    """One `[notify.NAME]` for its channel. Some options are secrets: never logged, shown or stored."""

    __repr__ = ChannelTerms.__repr__


class ChannelSection(ChannelTerms, frozen=True, kw_only=True):
    """One `[notify.NAME]` of the settings: its secrets are references."""

    secrets: Mapping[str, Secret] = {}  # the secret options that are set

    __repr__ = ChannelTerms.__repr__

    def revealed(self) -> ChannelSettings:
        """The same with the texts of its secrets, for the channel that is built now."""
        options = _revealed(self.options, self.secrets)
        return ChannelSettings(name=self.name, options=options, min_severity=self.min_severity)


def _revealed(options: Mapping[str, Option], secrets: Mapping[str, Secret]) -> dict[str, Option]:
    return {**options, **{name: secret.reveal_option() for name, secret in secrets.items()}}
