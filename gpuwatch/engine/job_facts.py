"""What an alert says about a watch with a limit for the whole job: the limit, the cost, its parts. Pure."""

from __future__ import annotations

from gpuwatch.domain.market.money import dollars
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
    span = "" if low.microusd == high.microusd else f"{dollars(usd(low.microusd))} to "
    facts = [("Job", f"{span}{dollars(usd(high.microusd))} in all: {', '.join(_parts(high))}")]
    facts.append(("Hours", f"{high.hours:.1f}, {found.how}"))
    if found.unknown:
        facts.append(("Not in it", f"{', '.join(found.unknown)}: not known"))
    return facts


def job_mark(match: Match) -> tuple[str, ...]:
    """For one line of an alert."""
    return () if match.job_microusd is None else (f"job {dollars(usd(match.job_microusd))}",)


def _parts(bill: JobBill) -> list[str]:
    hours = {
        "work": bill.work_h,
        "getting ready": bill.ready_h,
        "restarts": bill.restart_h + bill.lost_h,
        "least billing": bill.minimum_h,
    }
    found = [f"{name} {dollars(bill.usd_for(spent))}" for name, spent in hours.items() if bill.usd_for(spent) >= 0.005]
    return [*found, f"traffic {dollars(bill.traffic_usd)}"] if bill.traffic_usd >= 0.005 else found
