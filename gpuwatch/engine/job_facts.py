"""What an alert says of a watch that goes by the cost of its job: the limit, the cost, what it is made of. Pure."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from gpuwatch.domain.market.pricing import usd
from gpuwatch.domain.planning.job import JobBill, JobCost
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.job_cost import job_cost
from gpuwatch.domain.watches.watch import Watch


def job_facts(watch: Watch, match: Match) -> list[tuple[str, str]]:
    """Label and value; empty: the watch goes by price."""
    found = job_cost(watch, match.offer, match.price)
    if not isinstance(found, JobCost):
        return []
    low, high = found.low, found.high
    span = "" if low.microusd == high.microusd else f"${dollars(low.microusd)} to "
    facts = [("Job", f"{span}${dollars(high.microusd)} in all: {', '.join(_parts(high))}")]
    facts.append(("Hours", f"{high.hours:.1f}, {found.how}"))
    if found.unknown:
        facts.append(("Not in it", f"{', '.join(found.unknown)}: not known"))
    return facts


def job_mark(match: Match) -> tuple[str, ...]:
    """For one line of an alert."""
    return () if match.job_microusd is None else (f"job ${dollars(match.job_microusd)}",)


def dollars(micro: int) -> str:
    """Cents, with commas."""
    return f"{usd(micro).quantize(Decimal('0.01'), ROUND_HALF_EVEN):,}"


def _parts(bill: JobBill) -> list[str]:
    hours = {
        "work": bill.work_h,
        "getting ready": bill.ready_h,
        "restarts": bill.restart_h + bill.lost_h,
        "least billing": bill.minimum_h,
    }
    found = [f"{name} ${bill.usd_for(spent):,.2f}" for name, spent in hours.items() if bill.usd_for(spent) >= 0.005]
    return [*found, f"traffic ${bill.traffic_usd:,.2f}"] if bill.traffic_usd >= 0.005 else found
