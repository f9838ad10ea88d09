"""The settings as the rest of gpuwatch gets them: plain, frozen, already validated."""

from __future__ import annotations

import msgspec

from gpuwatch.domain.watches.watch import Budget, Watch
from gpuwatch.ports import AppriseSettings, ChannelSettings, EmailSettings, ProviderSettings, TelegramSettings


class Channels(msgspec.Struct, frozen=True):
    """`[notify.*]`. None: that channel is not configured."""

    telegram: TelegramSettings | None = None
    email: EmailSettings | None = None
    apprise: AppriseSettings | None = None
    plugins: dict[str, ChannelSettings] = {}  # by name

    @property
    def names(self) -> tuple[str, ...]:
        """Every channel that is configured."""
        ours = (("telegram", self.telegram), ("email", self.email), ("apprise", self.apprise))
        return (*(name for name, configured in ours if configured), *self.plugins)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set. `providers` holds the enabled ones by name; `database_url` may hold a password."""

    timezone: str
    database_url: str
    dry_run: bool
    budget: Budget
    providers: dict[str, ProviderSettings]
    record_gpus: tuple[str, ...]  # canonical names
    channels: Channels
    watches: tuple[Watch, ...]
    source_file: str | None  # None: defaults and environment alone
    left_out: tuple[str, ...] = ()  # watches that are wrong; only settings for stopping leave any out

    def __repr__(self) -> str:
        return f"Settings({self.source_file!r}, {len(self.watches)} watches, providers {sorted(self.providers)})"
