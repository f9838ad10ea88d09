"""The settings for the rest of gpuwatch: plain, frozen, already validated."""

from __future__ import annotations

import msgspec

from gpuwatch.domain.watches.watch import Budget, Watch
from gpuwatch.ports import ChannelSection, ProviderSection
from gpuwatch.secret import Secret
from gpuwatch.settings.web import WebSettings


class OrchestratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that rents the machines of multi-node jobs. `tool` empty: none."""

    tool: str = ""
    program: str = "dstack"
    project: str = ""
    timeout_s: float = 60.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. `providers` holds the enabled ones, `channels` the configured ones.

    `database_url` may contain a password.
    """

    timezone: str
    database_url: str
    dry_run: bool
    budget: Budget
    providers: dict[str, ProviderSection]
    record_gpus: tuple[str, ...]  # canonical names
    channels: dict[str, ChannelSection]
    watches: tuple[Watch, ...]
    quiet_hours: tuple[str, ...] = ()  # local windows in which only critical alerts are sent
    watch_ended_s: float = 604_800.0  # for this long after its end, a launch is reopened if its instance is listed
    gather_s: float = 3.0  # how long a watch that rents waits for quotes of its other providers; 0: the first one wins
    orchestrator: OrchestratorSettings = OrchestratorSettings()
    heartbeat_url: Secret | None = None  # whoever knows it can report this daemon as healthy
    web: WebSettings = WebSettings()
    source_file: str | None  # None: only defaults and environment
    left_out: tuple[str, ...] = ()  # ignored invalid watches; only in best-effort settings
    rescue: str = ""  # why nothing is rented with these settings, which were salvaged from invalid ones

    def __repr__(self) -> str:
        return f"Settings({self.source_file!r}, {len(self.watches)} watches, providers {sorted(self.providers)})"
