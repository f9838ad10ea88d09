"""One check: poll the providers of some watches, explain the decision, store the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gpuwatch.app.market.offers import OfferView, emptied_reason, match_view, named_providers
from gpuwatch.app.watches.nearest import NearestView, nearest_view
from gpuwatch.bootstrap import build_adapters, command_holds, http_client, open_store, open_store_read_only, real_now
from gpuwatch.domain.market.json_view import JsonView, Moment, number
from gpuwatch.domain.watches.choice import best_first
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import StoreError, StoreMissing, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.watches.current_limits import CurrentLimits
    from gpuwatch.domain.launches.life.admission import WatchBlock
    from gpuwatch.domain.watches.decide import Match, WatchMemory
    from gpuwatch.domain.watches.watch import AutoPrice, Watch
    from gpuwatch.engine.forecasts.auto_limits import AutoPriceLimit
    from gpuwatch.engine.watches.one_poll import ProviderCheck, ProviderReport
    from gpuwatch.ports.market import HoldStore
    from gpuwatch.settings import Settings


_LANE = "check"  # of its answers in the store
_RARE = timedelta(hours=1)


class MarketCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    at: datetime
    providers: Sequence[ProviderCheck]
    matches: dict[str, Sequence[Match]]  # by watch, cheapest first

    @property
    def is_complete(self) -> bool:
        """Whether every provider gave a complete answer."""
        return all(provider.report.ok for provider in self.providers)


def check_markets(
    settings: Settings,
    watches: Sequence[Watch],
    provider_names: Sequence[str],
    keep: bool = False,
    *,
    for_person: bool = False,
) -> MarketCheck:
    """Poll the providers of the watches, or the named ones among them, and match their offers.

    Args:
        keep: store the time until which a provider accepts no more searches.
        for_person: a person reads the result, who wants to know the nearest offer above a limit, too. Otherwise a
            provider that counts rows is searched above the limits only if it was not checked for an hour.

    Raises:
        UsageError: these watches use none of the named providers.
    """
    checked = _poll(settings, watches, provider_names, command_holds(settings, keep), for_person)
    matches = {watch.name: _matches_of(watch.name, checked) for watch in watches}
    return MarketCheck(at=real_now(), providers=checked, matches=matches)


def _poll(
    settings: Settings, watches: Sequence[Watch], selected_names: Sequence[str], holds: HoldStore, for_person: bool
) -> list[ProviderCheck]:
    """Poll every provider of the watches in its own thread, so that a slow or failing one does not delay the others.

    A provider that cannot be polled has a report that states why.
    """
    from gpuwatch.bootstrap.provider_access import is_polled_for
    from gpuwatch.engine.setup.parallel import run_in_parallel
    from gpuwatch.engine.watches.one_poll import check_provider, not_checked

    provider_names = named_providers(settings, selected_names)
    polled = {name: [watch for watch in watches if is_polled_for(name, watch)] for name in provider_names}
    polled = {name: selected for name, selected in polled.items() if selected}
    if not polled:
        raise UsageError("these watches use no enabled provider; see: gpuwatch config show")
    with http_client(settings) as http:

        def one(name: str) -> ProviderCheck:
            market = build_adapters(settings, http, [name], holds=holds, is_patient=False)[name].market
            wide = for_person or not settings.providers[name].rows_per_day or not _was_checked_lately(settings, name)
            return check_provider(
                market, polled[name], settings.providers[name].commission, real_now, at_any_price=wide
            )

        by_name = {
            outcome.name: outcome.result or not_checked(outcome.name, outcome.error or "")
            for outcome in run_in_parallel(polled, one)
        }
    return [_doubted(settings, by_name[name]) for name in polled]


def _was_checked_lately(settings: Settings, name: str) -> bool:
    """Whether the store has a recent check of a provider: a script that checks often must not use up its row quota."""
    from gpuwatch.storage.history.queries.poll_queries import last_polls_by_lane

    try:
        with open_store_read_only(settings) as store:
            newest = last_polls_by_lane(store).get((name, _LANE))
    except StoreError:
        return False
    return newest is not None and real_now() - newest.at < _RARE


def _doubted(settings: Settings, part: ProviderCheck) -> ProviderCheck:
    """The result, unless it is empty and a daemon has found that this provider's answers became empty."""
    if not part.report.ok or part.report.offers or (why := emptied_reason(settings, part.report.provider)) is None:
        return part
    return msgspec.structs.replace(part, report=msgspec.structs.replace(part.report, ok=False, error=why))


def explain_lines(
    settings: Settings, watches: Sequence[Watch], checked: MarketCheck, provider_names: Sequence[str]
) -> Iterator[str]:
    """The decision that the daemon would make now, and why; for the nearest offers, the failed clauses and distances.

    Polls once more, without a price limit.
    """
    from gpuwatch.engine.watches.one_poll import comparison_lines, decision_line, explain

    try:
        memories = _watch_memories(settings)
    except StoreError as error:
        memories = {}
        yield f"without the state of the daemon's watches: {error}"
    commissions = {name: provider.commission for name, provider in settings.providers.items()}
    with http_client(settings) as http:
        built = build_adapters(settings, http, provider_names or None, is_patient=False)
        silent = {part.report.provider: part.report.error for part in checked.providers if not part.answers}
        for watch in watches:
            yield decision_line(watch, checked.providers, memories.get(watch.name), real_now(), settings.timezone)
            yield from comparison_lines(watch, checked.providers)
            for name, adapter in built.items():
                if watch.providers is not None and name not in watch.providers:
                    continue
                if (reason := silent.get(name)) is not None:
                    yield f"{watch.name} at {name}: cannot tell: {reason}"
                else:
                    yield from explain(watch, adapter.market, commissions, real_now())


def _watch_memories(settings: Settings) -> Mapping[str, WatchMemory]:
    """The stored state of the daemon's watches; empty without a store. Raises StoreError: it cannot be read."""
    from gpuwatch.storage.unit_of_work import SqlDecisionStore

    try:
        with open_store_read_only(settings) as store:
            return SqlDecisionStore(store).memories()
    except StoreMissing:
        return {}


def store_check(settings: Settings, checked: MarketCheck) -> None:
    """Store the answers of a check; creates a missing database.

    Raises:
        StoreNotReady: the schema is older; nothing was stored.
        StoreError: nothing, or not everything, was stored.
    """
    from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder

    with open_store(settings) as store:
        history = SqlHistoryRecorder(store)
        for query, answer in (one for part in checked.providers for one in part.answers):
            if answer.searches:
                gpu = query.gpus[0] if len(query.gpus) == 1 else ""
                history.record(answer, lane=_LANE, gpu=gpu, spot=query.spot)


def _matches_of(name: str, checked: Sequence[ProviderCheck]) -> Sequence[Match]:
    matches = [match for part in checked for match in part.matches.get(name, ())]
    return sorted(matches, key=lambda match: match.figure)


def blocked_watches(settings: Settings, limits: CurrentLimits, checked: MarketCheck) -> Mapping[str, WatchBlock | None]:
    """Why each watch with matches does not act, by name; None: it does, or it only sends alerts.

    A store that cannot be read says nothing.
    """
    return {watch.name: _blocked(settings, watch, checked) for watch in limits.watches}


def _blocked(settings: Settings, watch: Watch, checked: MarketCheck) -> WatchBlock | None:
    matches = checked.matches[watch.name]
    if not matches or (watch.action is Action.ALERT and not watch.has_waits):
        return None
    from gpuwatch.app.watches.blocked import blocked
    from gpuwatch.engine.watches.one_poll import decision_of

    try:
        memory = _watch_memories(settings).get(watch.name)
        decision = decision_of(watch, checked.providers, memory, checked.at, settings.timezone)
        return blocked(settings, watch, decision, checked.at)
    except StoreError:
        return None


def nearest_offers(settings: Settings, limits: CurrentLimits, checked: MarketCheck) -> Mapping[str, NearestView]:
    """The nearest offer above the limit of each watch without a match, by name, as far as the poll showed it."""
    near = [
        (watch, min(misses, key=lambda match: match.figure))
        for watch in limits.watches
        if not checked.matches[watch.name] and (misses := _misses(watch.name, checked))
    ]
    times = _times_under(settings, [watch for watch, _ in near], checked.at)
    views = {watch.name: nearest_view(watch, match, times.get(watch.name)) for watch, match in near}
    return {name: view for name, view in views.items() if view is not None}


def _times_under(settings: Settings, watches: Sequence[Watch], now: datetime) -> Mapping[str, int | None]:
    if not watches:
        return {}
    from gpuwatch.app.watches.times_under import times_under_limits

    return times_under_limits(settings, watches, now)


def _misses(name: str, checked: MarketCheck) -> list[Match]:
    return [part.nearest[name] for part in checked.providers if name in part.nearest]


class WatchView(JsonView, frozen=True, kw_only=True):
    """A watch and its offers; `max_price` is null if its limit is not a price."""

    name: str
    max_price: Annotated[float | None, Meta(description="USD per GPU-hour, commission included.")]
    max_job_cost_usd: float | UnsetType = UNSET
    matched: bool
    offers: list[OfferView]
    nearest: NearestView | None
    blocked_by: Annotated[str | None, Meta(description="Why it does not act although offers match.")]
    blocked_reason: str | None


class AutoLimitView(JsonView, frozen=True, kw_only=True):
    """The basis of an automatic limit."""

    max_price_cap: Annotated[float | None, Meta(description="USD per GPU-hour.")]
    deadline: Moment | None
    rule: str | None
    why_none: Annotated[str | None, Meta(description="Why the history gives no limit, so that the cap applies.")]


class CheckedWatchView(WatchView, frozen=True, kw_only=True):
    """A watch of a check."""

    command: Annotated[tuple[str, ...] | UnsetType, Meta(description="What its command would run.")] = UNSET
    auto: AutoLimitView | UnsetType = UNSET


def watch_fields(
    watch: Watch, matches: Sequence[Match], block: WatchBlock | None, nearest: NearestView | None
) -> dict[str, Any]:
    """The fields of a `WatchView`."""
    is_priced = not watch.unlimited and watch.max_job_cost_usd is None
    return {
        "name": watch.name,
        "max_price": float(watch.max_price_usd_gpu_hour) if is_priced else None,
        "max_job_cost_usd": UNSET if watch.max_job_cost_usd is None else float(watch.max_job_cost_usd),
        "matched": bool(matches),
        "offers": [match_view(match, watch.traffic) for match in matches],
        "nearest": nearest,
        "blocked_by": None if block is None else block.reason.value,
        "blocked_reason": None if block is None else block.sentence,
    }


class ProviderReportView(JsonView, frozen=True, kw_only=True):
    """How a provider answered."""

    provider: str
    ok: Annotated[bool, Meta(description="The answers cover everything that was queried.")]
    offers: int
    skipped: int
    elapsed_ms: int
    error: str | None
    without_country: dict[str, int]
    not_listed: list[str]
    not_understood: Annotated[dict[str, int], Meta(description="Reason: number of rows.")]


class CheckView(JsonView, frozen=True, kw_only=True):
    """The result of `gpuwatch check`."""

    checked_at: Moment
    matched: bool
    watches: list[CheckedWatchView]
    providers: list[ProviderReportView]


def check_view(
    limits: CurrentLimits,
    checked: MarketCheck,
    blocks: Mapping[str, WatchBlock | None],
    nearest: Mapping[str, NearestView],
) -> CheckView:
    """The result as other programs see it.

    Args:
        limits: the watches with their current limits.
        blocks: why watches do not act.
        nearest: the nearest offers of watches without a match.
    """
    return CheckView.of(
        checked_at=checked.at,
        matched=any(checked.matches.values()),
        watches=[
            _checked_watch(watch, limits, checked, blocks.get(watch.name), nearest.get(watch.name))
            for watch in limits.watches
        ],
        providers=[_report_view(part.report) for part in checked.providers],
    )


def _checked_watch(
    watch: Watch, limits: CurrentLimits, checked: MarketCheck, block: WatchBlock | None, nearest: NearestView | None
) -> CheckedWatchView:
    matches, limit = checked.matches[watch.name], limits.limits_by_watch.get(watch.name)
    return CheckedWatchView.of(
        **watch_fields(watch, matches, block, nearest),
        command=command_to_run(watch, matches) if watch.action is Action.COMMAND else UNSET,
        auto=UNSET if watch.auto is None else _auto_view(watch.auto, limit),
    )


def _auto_view(auto: AutoPrice, limit: AutoPriceLimit | None) -> AutoLimitView:
    return AutoLimitView.of(
        max_price_cap=number(auto.cap_usd_gpu_hour),
        deadline=limit.deadline if limit else None,
        rule=limit.rule or None if limit else None,
        why_none=limit.why_none if limit else "the history cannot be read",
    )


def _report_view(report: ProviderReport) -> ProviderReportView:
    return ProviderReportView.of(
        report,
        skipped=sum(report.skipped.values()),
        elapsed_ms=round(report.elapsed_s * 1000),
        not_listed=sorted(report.not_listed),
        not_understood=dict(report.skipped),
    )


def command_to_run(watch: Watch, matches: Sequence[Match]) -> tuple[str, ...]:
    """The words of the watch's command for its best offer; empty: there is no command or no offer."""
    if watch.action is not Action.COMMAND or not matches:
        return ()
    from gpuwatch.domain.watches.orchestrator_task import filled_words

    return filled_words(watch, best_first(watch, matches)[0], "LAUNCH")
