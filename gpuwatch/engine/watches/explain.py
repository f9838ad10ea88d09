"""Explains why a watch does not match: the nearest offers and the clauses that rejected them, as text lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.market.marks import marks
from gpuwatch.domain.market.money import price_text
from gpuwatch.domain.market.pricing import Commission
from gpuwatch.domain.watches.choice import best_first, compare, tie_of
from gpuwatch.domain.watches.computed_limits import reputation_basis
from gpuwatch.domain.watches.decide import Decision, Match, Observation, WatchMemory, decide
from gpuwatch.domain.watches.explain import NearMiss, nearest
from gpuwatch.domain.watches.reputation import machine_record_of, reputation
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.offer_alerts import decision_text
from gpuwatch.engine.market.watch_search import PAGE_ROWS, queries_for, search_complete
from gpuwatch.engine.watches.one_poll import ProviderCheck
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Market

_TIED_SHOWN = 3


def decision_line(
    watch: Watch, checked: Sequence[ProviderCheck], memory: WatchMemory | None, now: datetime, zone: str
) -> str:
    """Return the decision reason that the daemon would find in this poll, as alerts and the log show it."""
    return f"{watch.name}: {decision_text(watch, decision_of(watch, checked, memory, now, zone))}"


def decision_of(
    watch: Watch, checked: Sequence[ProviderCheck], memory: WatchMemory | None, now: datetime, zone: str
) -> Decision:
    """Return the decision that the daemon would make on this poll."""
    found = best_first(watch, (match for part in checked for match in part.matches.get(watch.name, ())))
    known = all(part.report.ok for part in checked)
    look = Observation(matches=tuple(found), known=known, near=bool(found), observed_at=now)
    return decide(watch, look, memory or WatchMemory(), now, zone)


def comparison_lines(watch: Watch, checked: Sequence[ProviderCheck]) -> Iterator[str]:
    """Describe what was compared, which offers tied, and which rule decided; empty without a match.

    Before a launch, gpuwatch compares its current quotes again.
    """
    found = compare(watch, [match for part in checked for match in part.matches.get(watch.name, ())])
    if not found.ordered:
        return
    counts = Counter(match.offer.provider for match in found.ordered)
    silent = [part.report.provider for part in checked if not part.report.ok]
    without = f"; no complete answer from {' and '.join(silent)}" if silent else ""
    yield f"  compared: {', '.join(f'{count} at {name}' for name, count in sorted(counts.items()))}{without}"
    if found.tied > 1:
        share = 0.0 if watch.max_job_cost_usd is not None else tie_of(watch)
        more = "" if found.tied <= _TIED_SHOWN else f" and {found.tied - _TIED_SHOWN} more"
        equal = f"within {share * 100:g} % of the best" if share else "equal"
        yield f"  tied, {equal}: {'; '.join(map(_match_text, found.ordered[: min(found.tied, _TIED_SHOWN)]))}{more}"
    yield f"  best: {_match_text(found.ordered[0])}, by {found.rule}"
    if watch.min_reputation is not None:
        offer = found.ordered[0].offer
        is_ = reputation(offer.reliability, machine_record_of(offer, watch.records))
        yield f"  reputation of its machine: {is_:.3f} ({reputation_basis(watch, offer)})"


def _match_text(match: Match) -> str:
    offer, price = match.offer, match.price
    per_gpu = price_text(price.gpu_price_usd_hour(offer.gpu_count))
    shown = ", ".join((f"offer {offer.offer_id}", f"{per_gpu} $/GPU-h", *marks(offer)))
    return f"{offer.gpu_count}× {offer.gpu} at {offer.provider}, {shown}"


def explain(watch: Watch, market: Market, commissions: Mapping[str, Commission], now: datetime) -> Iterator[str]:
    """Search the watch's GPUs at any price and host; return why the nearest offers were rejected."""
    yield f"{watch.name} at {market.name}:"
    any_line = False
    for query in queries_for(watch, commissions.get(market.name, Commission()), PAGE_ROWS):
        wide = msgspec.structs.replace(
            query, count_min=1, count_max=None, max_listed_usd_hour=None, verified=None, min_reliability=None
        )
        try:
            answer, misses = search_complete(
                market.search, wide, lambda found: nearest(watch, found.offers, commissions, now)
            )
        except ProviderError as error:
            yield f"  cannot tell: {error}"
            return
        any_line = any_line or bool(misses)
        yield from map(_line, misses)
    if not any_line:
        yield "  no offer was rejected: " + ("there is none with these GPUs" if not answer.offers else "all match")


def _line(miss: NearMiss) -> str:
    offer = miss.offer
    what = f"{offer.gpu_count}× {offer.gpu}, offer {offer.offer_id}, machine {offer.machine_id or '–'}"
    return f"  {what}: {'; '.join(failure.text for failure in miss.failures)}"
