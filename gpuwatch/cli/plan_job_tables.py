"""What `plan job` prints: candidates compared with each other, offers by what the job costs on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.cli.output import note
from gpuwatch.cli.tables import left, right, table
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.planning.job import (
    METHOD_TEXT,
    SOURCE_LOAD_USD_GPU_HOUR,
    JobBill,
    JobCost,
)

if TYPE_CHECKING:
    from gpuwatch.app.plan_job import CurrentOffers
    from gpuwatch.domain.planning.figures import FigureRange
    from gpuwatch.domain.planning.job_comparison import ComparedHardware, JobOffer, JobRanking
    from gpuwatch.domain.planning.job_hours import JobSpec

_REASONS_SHOWN = 4
_PARTS: Sequence[tuple[str, Callable[[JobBill], float]]] = (
    ("work", lambda bill: bill.usd_for(bill.work_h)),
    ("ready", lambda bill: bill.usd_for(bill.ready_h)),
    ("restarts", lambda bill: bill.usd_for(bill.restart_h + bill.lost_h)),
    ("least", lambda bill: bill.usd_for(bill.minimum_h)),
    ("traffic", lambda bill: bill.traffic_usd),
    ("(disk)", lambda bill: bill.disk_usd),
)


def print_candidates(
    found: Sequence[ComparedHardware], spec: JobSpec, *, credit_usd: float, seed: bool, load_said: str | None
) -> None:
    """A table; the first line is what the others are compared with."""
    parts = _parts_of([one.cost for one in found])
    columns = [left("cards"), right("$ job"), right("against 1st", drop=1), right("hours", drop=2), right("$/h")]
    columns += [right("speed", drop=3), right("even at", drop=4), *(right(name, drop=5) for name, _ in parts)]
    if credit_usd:
        columns.insert(2, right("- credit", drop=1))
    rows = [_candidate_cells(one, found[0], parts, credit_usd) for one in found]
    table(columns, rows, title=None)
    if any(one.cost.high.interruptions for one in found):
        note(_loss(found, spec))
    _tell_load(found, spec, seed, load_said)
    _tell_difference(found, seed)
    for text in dict.fromkeys(text for one in found for text in one.cost.unknown):
        note(f"not in it: {text}, which is not known")


def _candidate_cells(
    one: ComparedHardware,
    first: ComparedHardware,
    parts: Sequence[tuple[str, Callable[[JobBill], float]]],
    credit_usd: float,
) -> list[str]:
    cost = one.cost
    cells = [one.candidate.on.text, _money(cost), _against(cost, first.cost), _range(cost.low.hours, cost.high.hours)]
    cells += [f"{one.priced_gpus.microusd_hour / MICRO:,.2f}", _factor(one.speed), f"{one.break_even:.4f}×"]
    if credit_usd:
        cells.insert(2, f"{max(0.0, cost.microusd / MICRO - credit_usd):,.2f}")
    return [*cells, *(f"{part(cost.high):,.2f}" for _, part in parts)]


def _tell_load(found: Sequence[ComparedHardware], spec: JobSpec, seed: bool, load_said: str | None) -> None:
    """One load by itself; and where the sources' figure for it comes from."""
    from gpuwatch.app.plan_job import load_range

    if load_said is None:
        return
    for one in found:
        usd = load_range(one, spec, load_said)
        note(f"{one.candidate.on.text}: one load of the model costs {_range(usd.low, usd.high, 2)}")
    if seed:
        was = SOURCE_LOAD_USD_GPU_HOUR
        note(f"the sources print 2.33 a load (23.30 for ten): that is 4 cards at {was:.2f}, not 4.00, for 7 minutes")


def _tell_difference(found: Sequence[ComparedHardware], seed: bool) -> None:
    """Where and why this is not what the sources print."""
    if seed:
        note("price × hours only, as the sources compute; loading, restarts, minimum billing and traffic are left out")
        return
    plain = [one.cost.high.usd_for(one.cost.high.work_h) for one in found]
    if any(abs(usd - one.cost.microusd / MICRO) >= 0.005 for usd, one in zip(plain, found, strict=True)):
        note(f"the sources count price × hours alone (--seed): {', '.join(f'{usd:,.2f}' for usd in plain)}")


def _loss(found: Sequence[ComparedHardware], spec: JobSpec) -> str:
    interval_h = (spec.checkpoint_s or 0.0) / 3600
    if not interval_h:
        return "without checkpoints an interruption loses all the work: --checkpoint-every"
    most = max(one.priced_gpus.microusd_hour for one in found) / MICRO * interval_h
    return f"one interruption loses at most what is between two checkpoints: {most:,.2f} $"


def print_offers(found: CurrentOffers, ranking: JobRanking, limit: int, timezone: str, credit_usd: float) -> None:
    """A table, cheapest job first."""
    from gpuwatch.cli.output import local

    if not ranking.placed:
        return
    shown = ranking.placed[:limit]
    parts = _parts_of([one.cost for one in shown])
    columns = [left("GPU"), right("$ job"), right("hours", drop=2), right("$/GPU-h"), right("$/h", drop=3)]
    columns += [*(right(name, drop=5) for name, _ in parts), left("provider"), left("place", drop=6), right("offer")]
    if credit_usd:
        columns.insert(2, right("- credit", drop=1))
    title = f"{len(ranking.placed)} offers by the whole job's cost; {found.source}, {local(found.as_of, timezone)}"
    table(columns, [_offer_cells(one, parts, credit_usd) for one in shown], title=title)
    if len(ranking.placed) > limit:
        note(f"… and {len(ranking.placed) - limit} more (--limit)")
    note("hours: " + "; ".join(list(dict.fromkeys(one.cost.how for one in shown))[:_REASONS_SHOWN]))
    for text in dict.fromkeys(text for one in shown for text in one.cost.unknown):
        note(f"not in it where an offer does not say: {text}")
    _tell_order(ranking)
    note(METHOD_TEXT)


def _tell_order(ranking: JobRanking) -> None:
    """What the list by GPU price would have chosen."""
    best = ranking.placed[0]
    by_price = min(ranking.placed, key=lambda one: one.price.price_microusd_hour / one.offer.gpu_count)
    more = by_price.cost.microusd - best.cost.microusd
    if more > 0:
        named = f"{by_price.offer.gpu_count}× {by_price.offer.gpu}, offer {by_price.offer.offer_id}"
        note(f"the lowest GPU price ({named}) would cost {more / MICRO:,.2f} $ more for this job")


def _offer_cells(
    one: JobOffer, parts: Sequence[tuple[str, Callable[[JobBill], float]]], credit_usd: float
) -> list[str]:
    offer, price, cost = one.offer, one.price.price_microusd_hour / MICRO, one.cost
    cells = [f"{offer.gpu_count}× {offer.gpu}{' spot' if offer.spot else ''}", _money(cost)]
    if credit_usd:
        cells.append(f"{max(0.0, cost.microusd / MICRO - credit_usd):,.2f}")
    cells += [_range(cost.low.hours, cost.high.hours), f"{price / offer.gpu_count:.3f}", f"{price:.3f}"]
    cells += [f"{part(cost.high):,.2f}" for _, part in parts]
    listed = "" if offer.kind.value == "live" else f" ({offer.kind.value})"
    return [*cells, offer.provider + listed, offer.place or "–", offer.offer_id]


def tell_refused(ranking: JobRanking) -> None:
    """Why the job cannot be computed, or done, on the other offers."""
    if not ranking.refused:
        return
    reasons = [f"{count}: {reason}" for reason, count in ranking.refused[:_REASONS_SHOWN]]
    more = sum(count for _, count in ranking.refused[_REASONS_SHOWN:])
    reasons += [f"{more} for other reasons"] if more else []
    note(f"left out, of {ranking.seen} offers: {'; '.join(reasons)}")


def _parts_of(costs: Sequence[JobCost]) -> list[tuple[str, Callable[[JobBill], float]]]:
    """The columns that hold anything; work alone is no column of its own."""
    found = [one for one in _PARTS if any(one[1](cost.high) >= 0.005 for cost in costs)]
    return [] if [name for name, _ in found] == ["work"] else found


def _money(cost: JobCost) -> str:
    return _range(cost.low.microusd / MICRO, cost.microusd / MICRO, 2)


def _against(cost: JobCost, first: JobCost) -> str:
    return "–" if cost is first else f"{(cost.microusd - first.microusd) / MICRO:+,.2f}"


def _range(low: float, high: float, digits: int = 1) -> str:
    shown = f"{low:,.{digits}f}", f"{high:,.{digits}f}"
    return shown[1] if shown[0] == shown[1] else "–".join(shown)


def _factor(speed: FigureRange) -> str:
    return f"{_range(speed.low, speed.high, 2)}×"
