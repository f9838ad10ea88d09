"""One check: poll the providers of some watches, explain the decision, store the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuwatch.app.offers import match_json, named_providers
from gpuwatch.bootstrap import build_adapters, http_client, real_now
from gpuwatch.domain.market.json_values import number, rfc3339
from gpuwatch.errors import StoreError, StoreMissing, UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.app.auto_prices import LimitsInForce
    from gpuwatch.domain.watches.decide import Match, WatchMemory
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.engine.auto_prices import AutoPriceLimit
    from gpuwatch.engine.check import ProviderCheck
    from gpuwatch.settings import Settings


def check_markets(settings: Settings, watches: Sequence[Watch], only: Sequence[str]) -> list[ProviderCheck]:
    """Poll every provider of the watches in its own thread: a slow or failing one never delays another.

    A provider that cannot be asked at all answers with a report that says so.
    """
    from gpuwatch.bootstrap.provider_access import is_polled_for
    from gpuwatch.engine.check import check_provider, not_checked
    from gpuwatch.engine.parallel import run_in_parallel

    named = named_providers(settings, only)
    asked = {name: [watch for watch in watches if is_polled_for(name, watch)] for name in named}
    asked = {name: mine for name, mine in asked.items() if mine}
    if not asked:
        raise UsageError("no enabled provider is asked for by these watches; see: gpuwatch config show")
    with http_client(settings) as http:

        def one(name: str) -> ProviderCheck:
            market = build_adapters(settings, http, [name])[name].market
            return check_provider(market, asked[name], settings.providers[name].commission, real_now)

        found = {
            outcome.name: outcome.result or not_checked(outcome.name, outcome.error or "")
            for outcome in run_in_parallel(asked, one)
        }
    return [found[name] for name in asked]


def explain_lines(
    settings: Settings, watches: Sequence[Watch], checked: Sequence[ProviderCheck], only: Sequence[str]
) -> Iterator[str]:
    """What the daemon would decide now and why; for the nearest offers, which clause failed and by how much.

    Asks once more, without a price.
    """
    from gpuwatch.engine.explain import decision_line, explain

    try:
        memories = _memories(settings)
    except StoreError as error:
        memories = {}
        yield f"without what the daemon's watches remember: {error}"
    commissions = {name: provider.commission for name, provider in settings.providers.items()}
    with http_client(settings) as http:
        built = build_adapters(settings, http, only or None)
        for watch in watches:
            yield decision_line(watch, checked, memories.get(watch.name), real_now(), settings.timezone)
            for name, adapter in built.items():
                if watch.providers is None or name in watch.providers:
                    yield from explain(watch, adapter.market, commissions, real_now())


def _memories(settings: Settings) -> Mapping[str, WatchMemory]:
    """The state of the daemon's watches; empty without a store. Raises StoreError: it cannot be read."""
    from gpuwatch.bootstrap import open_store_read_only
    from gpuwatch.storage.unit_of_work import SqlDecisionStore

    try:
        with open_store_read_only(settings) as store:
            return SqlDecisionStore(store).memories()
    except StoreMissing:
        return {}


def store_check(settings: Settings, checked: Sequence[ProviderCheck]) -> None:
    """Store the answers of a check. Raises StoreError."""
    from gpuwatch.storage.light_writer import record_answers

    answers = [(query, answer) for part in checked for query, answer in part.answers if answer.searches]
    record_answers(settings.database_url, answers, real_now())


def matches_of(name: str, checked: Sequence[ProviderCheck]) -> Sequence[Match]:
    found = [match for part in checked for match in part.matches.get(name, ())]
    return sorted(found, key=lambda match: match.figure)


def check_json(
    limits: LimitsInForce,
    checked: Sequence[ProviderCheck],
    matches: Mapping[str, Sequence[Match]],
    now: datetime,
) -> dict[str, Any]:
    """JSON of a check (CONTRACT §3).

    Args:
        limits: the watches with the limits that were in force.
        matches: by the watch's name, cheapest first.
    """
    return {
        "checked_at": rfc3339(now),
        "matched": any(matches.values()),
        "watches": [
            {
                "name": watch.name,
                **_limit_json(watch),
                "matched": bool(matches[watch.name]),
                "offers": [match_json(match) for match in matches[watch.name]],
                **_auto_json(watch, limits.standing.get(watch.name)),
            }
            for watch in limits.watches
        ],
        "providers": [_report_json(part) for part in checked],
    }


def _limit_json(watch: Watch) -> dict[str, float | None]:
    """The limit of a watch: a price, or the cost of the job."""
    if watch.max_job_cost_usd is None:
        return {"max_price": float(watch.max_price_usd_gpu_hour)}
    return {"max_price": None, "max_job_cost_usd": float(watch.max_job_cost_usd)}


def _auto_json(watch: Watch, standing: AutoPriceLimit | None) -> dict[str, Any]:
    """What an automatic limit is based on; empty for a fixed price."""

    if watch.auto is None:
        return {}
    why_none = standing.why_none if standing else "the history cannot be read"
    cap = number(watch.auto.cap_usd_gpu_hour)
    deadline = rfc3339(standing.deadline if standing else None)
    return {"auto": {"max_price_cap": cap, "deadline": deadline, "why_none": why_none}}


def _report_json(part: ProviderCheck) -> dict[str, Any]:
    report = part.report
    return {
        "provider": report.provider,
        "ok": report.ok,
        "offers": report.offers,
        "skipped": sum(report.skipped.values()),
        "elapsed_ms": round(report.elapsed_s * 1000),
        "error": report.error,
    }
