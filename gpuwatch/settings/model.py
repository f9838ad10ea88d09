"""The settings as the rest of gpuwatch gets them: plain, frozen, already validated."""

from __future__ import annotations

import msgspec

from gpuwatch.domain.watches.watch import Budget, Watch
from gpuwatch.ports import ChannelSettings, ProviderSettings
from gpuwatch.settings.web import WebSettings


class OrchestratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that rents the machines of jobs with several nodes. `tool` empty: there is none."""

    tool: str = ""
    program: str = "dstack"
    project: str = ""
    timeout_s: float = 60.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting. `providers` holds the enabled ones, `channels` the configured ones; both hold secrets.

    `database_url` may hold a password.
    """

    timezone: str
    database_url: str
    dry_run: bool
    budget: Budget
    providers: dict[str, ProviderSettings]
    record_gpus: tuple[str, ...]  # canonical names
    channels: dict[str, ChannelSettings]
    watches: tuple[Watch, ...]
    quiet_hours: tuple[str, ...] = ()  # local windows in which only critical alerts are sent
    watch_ended_s: float = 604_800.0  # after its end: so long a launch is reopened when its instance is listed
    gather_s: float = 3.0  # a renting watch waits so long for quotes of its other providers; 0: the first one wins
    orchestrator: OrchestratorSettings = OrchestratorSettings()
    heartbeat_url: str | None = None  # a secret: whoever has it can report this daemon as healthy
    web: WebSettings = WebSettings()
    source_file: str | None  # None: defaults and environment alone
    left_out: tuple[str, ...] = ()  # invalid watches; only settings for stopping leave any out
    rescue: str = ""  # why nothing is rented with these settings: they are what could be saved of wrong ones

    def __repr__(self) -> str:
        return f"Settings({self.source_file!r}, {len(self.watches)} watches, providers {sorted(self.providers)})"
