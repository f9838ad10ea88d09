"""The status of each provider and its searches, from settings and store: `gpuwatch providers`. Sends no request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from gpuwatch import providers
from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.bootstrap.polling import polling_plan
from gpuwatch.bootstrap.provider_access import can_rent, has_credentials, missing_extra
from gpuwatch.domain.market.json_view import JsonView, Moment, rfc3339
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.watches.query_plan import SharedQuery
from gpuwatch.engine.market.empty_answers import emptied
from gpuwatch.engine.market.polling_plan import PollingPlan
from gpuwatch.engine.market.row_budget import RowDemand, RowPlan, plan_rows
from gpuwatch.ports import LANES, ProviderHealth, ProviderSection
from gpuwatch.ports.declarations import ProviderInfo
from gpuwatch.ports.market import Hold
from gpuwatch.providers.toolkit.rate_limiter import SEARCH
from gpuwatch.settings.validate import default_provider
from gpuwatch.storage.history.queries.poll_queries import (
    FormatChange,
    LastPoll,
    format_changes,
    last_not_understood,
    last_polls_by_lane,
    last_sweeps,
    newest_by_provider,
    rows_used,
    searches_since,
)
from gpuwatch.storage.market.provider_holds import SqlHolds
from gpuwatch.storage.unit_of_work import SqlDecisionStore

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


class ConfiguredProvider(msgspec.Struct, frozen=True, kw_only=True):
    """One provider, as described by the settings and the environment."""

    info: ProviderInfo
    settings: ProviderSection  # of a disabled provider: its defaults
    is_on: bool
    has_key: bool  # in the settings or the environment
    can_launch: bool
    missing_extra: str | None  # what must be installed before it can be polled

    @property
    def provider(self) -> str:
        """Its name."""
        return self.settings.name

    @property
    def status(self) -> str:
        """One of "off", "extra missing", "on"."""
        if not self.is_on:
            return "off"
        return "on" if self.missing_extra is None else "extra missing"

    @property
    def credentials(self) -> str:
        """Whether there are credentials, and their source; never their value."""
        if self.has_key:
            return "key set"
        if self.info.own_credentials is not None:
            return self.info.own_credentials
        if not self.info.key_names and not has_credentials(self.settings):
            return "none needed"
        return "no key"


class PollingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One enabled provider's searches."""

    plan: PollingPlan
    last_hour: Mapping[str, int]  # number of searches by lane
    hold: Hold | None  # no search before its end


class ProviderStatus(ConfiguredProvider, frozen=True, kw_only=True):
    """A provider's status together with the records of the store."""

    plan: RowPlan
    lanes: Mapping[str, ProviderHealth]  # "hunt" and "sweep"
    last_poll: LastPoll | None  # the newest complete one
    not_understood: Mapping[str, int]  # reason → rows of that poll
    drift: Sequence[FormatChange]  # changes of its format
    swept_at: datetime | None
    next_sweep_at: datetime | None
    polling: PollingStatus | None  # None: it is off, or was not asked for
    empty: Hold | None = None  # its answers became empty

    @property
    def health(self) -> ProviderHealth:
        """The health of the whole provider: that of the lane that has been blind longest, else the newest answer."""
        blind = [lane_health for lane_health in self.lanes.values() if lane_health.blind_since is not None]
        complete_at = max(
            (lane_health.complete_at for lane_health in self.lanes.values() if lane_health.complete_at), default=None
        )
        return msgspec.structs.replace(_longest_outage(blind) if blind else ProviderHealth(), complete_at=complete_at)

    @property
    def status(self) -> str:
        """One of "off", "extra missing", "blind", "empty", "on"."""
        status = super().status
        if status == "on" and self.health.blind_since is not None:
            return "blind"
        return "empty" if status == "on" and self.empty is not None else status


def configured_providers(settings: Settings, *, only_enabled: bool = False) -> list[ConfiguredProvider]:
    """All known providers, or the enabled ones; enabled ones first. Needs no store."""
    enabled = [_configured(options, True) for options in settings.providers.values()]
    if only_enabled:
        return enabled
    off = [default_provider(name) for name in providers.names() if name not in settings.providers]
    return enabled + [_configured(options, False) for options in off]


def provider_statuses(
    settings: Settings, *, only_enabled: bool = False, with_polling: bool = True
) -> list[ProviderStatus]:
    """All known providers, or the enabled ones, with health and quota; enabled ones first. Raises StoreError.

    Args:
        with_polling: also plan the searches of the enabled ones, for which the offers in the store are read.
    """
    selected = configured_providers(settings, only_enabled=only_enabled)
    with open_store_read_only(settings) as store:
        records = _Records(store)
        return [records.status(settings, configured, with_polling) for configured in selected]


def _configured(provider: ProviderSection, is_on: bool) -> ConfiguredProvider:
    info = providers.info(provider.name)
    return ConfiguredProvider(
        info=info,
        settings=provider,
        is_on=is_on,
        has_key=provider.api_key is not None if is_on else _has_key_file(info),
        can_launch=is_on and can_rent(provider),
        missing_extra=missing_extra(provider.name),
    )


class _Records:
    """What the store has about all providers, each kind read at once."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._now = real_now()
        self._sweeps = last_sweeps(store)
        self._polls = last_polls_by_lane(store)
        self._newest = newest_by_provider(self._polls)
        self._not_understood = last_not_understood(store)
        self._drift = format_changes(store)
        self._rows_used = rows_used(store, self._now)
        self._health = SqlDecisionStore(store).provider_health()
        self._holds = SqlHolds(store).load_all()

    def status(self, settings: Settings, known: ConfiguredProvider, with_polling: bool) -> ProviderStatus:
        now, name, configured = self._now, known.provider, known.settings
        swept = self._sweeps.get(name)
        demand = RowDemand(
            rows_per_day=configured.rows_per_day,
            poll_every_s=configured.poll_every_s,
            sweep_rows=swept.rows if swept else None,
            sweep_every_s=configured.sweep_every_s,
        )
        plan = plan_rows(demand, self._rows_used.get(name, 0), now)
        next_at = None
        if known.is_on and swept and plan.sweep_every_s is not None:
            next_at = max(now, swept.at + timedelta(seconds=plan.sweep_every_s))
        return ProviderStatus(
            **msgspec.structs.asdict(known),
            plan=plan,
            lanes={lane: self._lane_health(name, lane) for lane in LANES},
            last_poll=self._newest.get(name),
            not_understood=self._not_understood.get(name, {}),
            drift=self._drift.get(name, ()),
            swept_at=swept.at if swept else None,
            next_sweep_at=next_at,
            polling=polling_status(settings, self._store, name, now) if known.is_on and with_polling else None,
            empty=emptied(self._holds.get(name, ()), now) if known.is_on else None,
        )

    def _lane_health(self, name: str, lane: str) -> ProviderHealth:
        health, newest = self._health.get((name, lane), ProviderHealth()), self._polls.get((name, lane))
        return msgspec.structs.replace(health, complete_at=newest.at if newest else None)


def _has_key_file(info: ProviderInfo) -> bool:
    """For a disabled provider: whether the environment contains a key. The key itself is not read."""
    return any(os.environ.get(name) or os.environ.get(f"{name}_FILE") for name in info.key_names)


def polling_status(settings: Settings, store: Database, name: str, now: datetime) -> PollingStatus:
    """Plan and searches of one enabled provider. Raises StoreError."""
    searches = searches_since(store, name, now - timedelta(hours=1))
    holds = [hold for hold in SqlHolds(store).load(name) if hold.kind == SEARCH and hold.set_at <= now < hold.until]
    return PollingStatus(
        plan=polling_plan(settings, name, store),
        last_hour=dict.fromkeys(LANES, 0) | searches,
        hold=holds[0] if holds else None,
    )


def polling_json(status: PollingStatus | None) -> dict[str, object] | None:
    """JSON of `polling` in `gpuwatch providers`; None: the provider is off."""
    if status is None:
        return None
    plan, hold = status.plan, status.hold
    available = plan.available_a_minute
    return {
        "searches_a_minute": {
            "available": None if available is None else round(available, 2),
            "hunt": round(plan.hunts_a_minute, 2),
            "sweep": round(plan.sweeps_a_minute, 2),
        },
        "searches_last_hour": dict(status.last_hour),
        "queries": plan.queries,
        "questions": [_shared_query_json(query) for query in plan.shared_queries],
        "round_s": round(plan.round_s, 1),
        "watches": [
            {"watch": name, "seen_within_s": round(seconds, 1)} for name, seconds in plan.seen_within_s.items()
        ],
        "warning": plan.warning,
        "held_until": rfc3339(hold.until if hold else None),
        "held_because": hold.reason if hold else None,
        "quota_resets_at": rfc3339(hold.quota_resets_at if hold else None),
    }


def _shared_query_json(shared: SharedQuery) -> dict[str, object]:
    query = shared.query
    return {
        "gpu": list(query.gpus),
        "gpu_count": [query.count_min, query.count_max],
        "spot": query.spot,
        "max_listed_usd_hour": query.max_listed_usd_hour,
        "expected_rows": round(shared.rows),
        "every_s": round(shared.every_s, 1),
        "watches": list(shared.watches),
    }


class LaneView(JsonView, frozen=True, kw_only=True):
    """The health of one kind of searches."""

    complete_at: Moment | None
    blind_since: Moment | None
    last_error: str | None


class FormatChangeView(JsonView, frozen=True, kw_only=True):
    """A change of a provider's format."""

    text: str
    first_seen_at: Moment


class ProviderStatusView(JsonView, frozen=True, kw_only=True):
    """One provider of `gpuwatch providers`."""

    provider: str
    title: str
    status: str
    enabled: bool
    kinds: tuple[OfferKind, ...]
    spot: bool
    base_url: str
    has_key: bool
    credentials: str
    searches_without_key: bool
    can_launch: bool
    launches: Annotated[bool, Meta(description="gpuwatch can rent there, given a key.")]
    missing_extra: str | None
    poll_every_s: float
    search_interval_s: float
    rows_per_day: Annotated[int, Meta(description="0: no quota.")]
    rows_used: int
    rows_left: int | None
    resets_at: Moment
    sweep_every_s: Annotated[int | None, Meta(description="Null: none before the reset.")]
    last_sweep_at: Moment | None
    next_sweep_at: Moment | None
    complete_at: Moment | None
    last_poll_gpu: str | None
    last_poll_offers: int | None
    last_poll_skipped: int | None
    not_understood: dict[str, int]
    blind_since: Moment | None
    empty_since: Moment | None
    last_error: str | None
    lanes: dict[str, LaneView]
    polling: dict[str, Any] | None
    drift: list[FormatChangeView]


def provider_status_view(status: ProviderStatus) -> ProviderStatusView:
    """A provider's status as other programs see it."""
    plan, newest = status.plan, status.last_poll
    return ProviderStatusView.of(
        status,
        status.settings,
        status.info,
        plan,
        status.health,
        enabled=status.is_on,
        kinds=tuple(status.info.kinds),
        spot=True in status.info.spots,
        rows_per_day=plan.rows_per_day,
        sweep_every_s=None if plan.sweep_every_s is None else round(plan.sweep_every_s),
        last_sweep_at=status.swept_at,
        last_poll_gpu=None if newest is None else newest.gpu or None,
        last_poll_offers=None if newest is None else newest.offers,
        last_poll_skipped=None if newest is None else newest.skipped,
        empty_since=status.empty.set_at if status.empty else None,
        lanes={lane: _lane_view(health) for lane, health in status.lanes.items()},
        polling=polling_json(status.polling),
        drift=[FormatChangeView.of(change) for change in status.drift],
    )


def _lane_view(health: ProviderHealth) -> LaneView:
    return LaneView.of(health, last_error=health.last_error if health.blind_since is not None else None)


def blind_lanes(status: ProviderStatus) -> list[tuple[str, ProviderHealth]]:
    """The blind lanes by name; lanes that are blind for the same reason are joined: "hunt, sweep"."""
    by_error: dict[str | None, list[str]] = {}
    for lane, health in status.lanes.items():
        if health.blind_since is not None:
            by_error.setdefault(health.last_error, []).append(lane)
    return [(", ".join(lanes), _longest_outage([status.lanes[lane] for lane in lanes])) for lanes in by_error.values()]


def _longest_outage(blind: Sequence[ProviderHealth]) -> ProviderHealth:
    """The health of the lane that has been blind longest."""
    return min(blind, key=lambda health: health.blind_since or datetime.max.replace(tzinfo=UTC))
