"""`gpuwatch plan job`: what a job costs, all in, on cards that are named or on real offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import (
    CURRENT_DATA,
    LISTED,
    POLL,
    Between,
    completes,
    config_option,
    duration_option,
    gpu_option,
    json_option,
)
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.plan_size import workload_options
from gpuwatch.cli.tables import left, right, table
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.planning.job import METHOD_TEXT, SOURCE_LOAD_USD_GPU_HOUR, JobBill, JobCost
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan_job import HardwarePlan, JobRequest, OfferPlan
    from gpuwatch.domain.planning.job_comparison import ComparedHardware, JobOffer, JobRanking
    from gpuwatch.domain.planning.memory_need import WorkloadRequest

_REASONS_SHOWN = 4
_Parts = Sequence[tuple[str, Callable[[JobBill], float]]]
_PARTS: _Parts = (
    ("work", lambda bill: bill.usd_for(bill.work_h)),
    ("ready", lambda bill: bill.usd_for(bill.ready_h)),
    ("restarts", lambda bill: bill.usd_for(bill.restart_h + bill.lost_h)),
    ("least", lambda bill: bill.usd_for(bill.minimum_h)),
    ("traffic", lambda bill: bill.traffic_usd),
    ("(disk)", lambda bill: bill.disk_usd),
)


def _number(_ctx: click.Context, param: click.Parameter, given: str | None) -> Decimal | None:
    try:
        return None if given is None else Decimal(given)
    except InvalidOperation:
        raise UsageError(f"{param.opts[0]} {given!r}: expected a number") from None


def _pairs(_ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str] | None:
    found = {}
    for text in given:
        gpus, _, figure = text.rpartition("=")
        if not gpus.strip():
            raise UsageError(f'{param.opts[0]} {text!r}: expected GPUs and a figure, such as "4x H100=2.5"')
        found[gpus.strip()] = figure.strip()
    return found or None


_PAIRS = {"multiple": True, "callback": _pairs}
_JOB_OPTIONS: dict[str, dict[str, Any]] = {  # by the key of `[watch.job]`
    "hours": {"help": 'Hours of work, "72" or "60-80", on the GPUs of --on.'},
    "on": {"metavar": "GPUS", "help": 'GPUs on which it takes those hours: "4x A100".'},
    "speedup": {"metavar": "GPUS=X", "help": 'Speed of other GPUs against --on: "4x H100=2.5".'} | _PAIRS,
    "tokens": {"help": 'Tokens of the whole job, instead of hours: "10B".'},
    "tokens_per_s": {"metavar": "GPUS=N", "help": 'Measured speed: "2x H100=350-500".'} | _PAIRS,
    "utilisation": {"help": 'Share of the nominal FLOP/s that the job reaches: "0.4", "0.35-0.45".'},
    "scaling": {"callback": _number, "help": "What each further GPU adds, as a share of one. Default: 1."},
    "memory_gb": {
        "callback": _number,
        "help": "GB that all GPUs together must hold. Default: what --size-of needs.",
    },
    "setup": {"metavar": "DURATION", "help": 'Setup, once: "10m".'},
    "load": {"metavar": "DURATION", "help": 'Loading the model, at each start: "5m-7m".'},
    "image_gb": {"callback": _number, "help": "GB of the image, pulled at each start."},
    "download_mbps": {"callback": _number, "help": "Download speed in Mbit/s where an offer does not say."},
    "checkpoint_every": {"metavar": "DURATION", "help": "Time between two checkpoints."},
    "within": {"metavar": "DURATION", "help": 'Longest time the whole job may take: "24h".'},
    "interruptions_per_day": {"callback": _number, "help": "Interruptions per day of a spot instance."},
}


def _job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for key, how in reversed(_JOB_OPTIONS.items()):
        command = click.option(f"--{key.replace('_', '-')}", key, **how)(command)
    return command


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan job '4x A100 @ 1.20 for 72h' '4x H100 @ 3.50 for 24h'",
        "gpuwatch plan job '4x A100 @ 1.20' '4x H100 @ 3.50' --hours 72 --on '4x A100' --speedup '4x H100=2.5'",
        "gpuwatch plan job --size-of 70B --method qlora --tokens 50M --utilisation 0.35 --disk-gb 200",
    ),
)
@click.argument("candidates", nargs=-1, metavar="[CANDIDATE]...")
@_job_options
@workload_options(needed=False)
@click.option("--download-gb", type=Between(min=0), default=0.0, help="GB the job downloads.")
@click.option("--upload-gb", type=Between(min=0), default=0.0, help="GB the job uploads.")
@click.option("--disk-gb", type=Between(min=1), default=None, help="GB of disk; part of the price.")
@gpu_option("--gpu", "Only offers with this GPU; may be repeated.", multiple=True)
@click.option("--count", default=None, help="Number of GPUs in an offer, N or MIN-MAX.")
@click.option("--spot", type=click.Choice(["no", "only", "any"]), default="no", help="Spot (interruptible) offers.")
@click.option(
    "--provider",
    multiple=True,
    metavar="NAME",
    help="Only this provider; may be repeated.",
    shell_complete=completes("providers"),
)
@click.option("--verified", is_flag=True, help="Only verified hosts.")
@LISTED
@POLL
@CURRENT_DATA
@duration_option("--timeout", "timeout_s", "With --poll: longest wait for all providers. Default: 60s.")
@click.option(
    "--commission",
    type=Between(min=0, max=10),
    default=0.0,
    help="Commission on top of the candidates' prices, such as 0.2.",
)
@click.option(
    "--disk-usd-gb-month",
    type=Between(min=0),
    default=0.0,
    help="Candidates: price of the disk in USD per GB and month.",
)
@click.option(
    "--download-usd-gb", type=Between(min=0), default=None, help="Candidates: price of traffic in USD per GB."
)
@click.option("--upload-usd-gb", type=Between(min=0), default=None, help="Candidates: price of traffic in USD per GB.")
@duration_option("--min-billing", "min_billing_s", "Candidates: minimum billing, such as 1h.")
@click.option("--credit", type=Between(min=0), default=0.0, help="Free credit in USD, subtracted at the end.")
@click.option(
    "--max-cost",
    "max_cost_usd",
    type=Between(min=0, min_open=True),
    default=None,
    metavar="USD",
    help="What the job may cost: says whether it is feasible, uncertain, or not feasible.",
)
@click.option("--limit", type=click.IntRange(1, 5000), default=20, show_default=True, help="Number of offers.")
@click.option("--seed", is_flag=True, help="Candidates: price × hours only, as the sources compute.")
@json_option
@config_option
def job(workload: WorkloadRequest, limit: int, as_json: bool, config: str | None, **given: Any) -> int:
    """Compute what a job costs in all: work, setup, restarts, minimum billing, traffic.

    Without any, on real offers, cheapest job first:

    Exit codes: 0 done, 1 the job fits no offer, 2 usage, 3 no prices are known, or a provider did not answer.
    """
    from gpuwatch.app.plan_job import JobRequest, plan_on_hardware, plan_on_offers
    from gpuwatch.bootstrap.settings_loading import load_settings

    table = {key: value for key in _JOB_OPTIONS if (value := given.pop(key)) is not None}
    asked = JobRequest(job=table, workload=workload, **given)
    if asked.candidates:
        _show_hardware(asked, plan_on_hardware(asked), as_json)
        return Exit.DONE
    settings = load_settings(config)
    plan = plan_on_offers(settings, asked)
    _show_offers(asked, plan, limit, None if as_json else settings.timezone)
    if not plan.ranking.seen or plan.market.troubles:
        return Exit.CANNOT_TELL
    return Exit.DONE if plan.ranking.placed else Exit.FAILED


def _note_estimate(plan: HardwarePlan | OfferPlan) -> None:
    from gpuwatch.app.plan_job import is_estimated

    if is_estimated(plan.spec):
        note(
            "the speed is estimated from published measurements (docs/plan.md); "
            '--tokens-per-s "4x H100=2500" as you measured, or --utilisation, narrows the figures'
        )


def _note_verdict(asked: JobRequest, costs: Sequence[JobCost]) -> None:
    from gpuwatch.app.plan_job import verdict_of

    verdict = verdict_of(asked, costs)
    if verdict is not None:
        best = min(costs, key=lambda cost: cost.microusd, default=None)
        cost = "" if best is None else f": it costs {_range(best.low.microusd / MICRO, best.microusd / MICRO, 2)} $"
        note(f"{verdict.value} for {asked.max_cost_usd:,.2f} ${cost}")


# --- on named hardware ------------------------------------------------------------------------------------------------


def _show_hardware(asked: JobRequest, plan: HardwarePlan, as_json: bool) -> None:
    """A table; the first line is what the others are compared with."""
    from gpuwatch.app.plan_job import hardware_plan_json

    _note_estimate(plan)
    if as_json:
        json_out(hardware_plan_json(asked, plan))
        return
    found = plan.found
    parts = _parts_of([one.cost for one in found])
    columns = [left("cards"), right("$ job"), right("against 1st", drop=1), right("hours", drop=2), right("$/h")]
    columns += [right("speed", drop=3), right("even at", drop=4), *(right(name, drop=5) for name, _ in parts)]
    if asked.credit:
        columns.insert(2, right("- credit", drop=1))
    table(columns, [_hardware_cells(asked, one, found[0], parts) for one in found])
    for line in _hardware_notes(asked, plan):
        note(line)
    _note_verdict(asked, [one.cost for one in found])


def _hardware_cells(asked: JobRequest, one: ComparedHardware, first: ComparedHardware, parts: _Parts) -> list[str]:
    cost = one.cost
    against = "–" if one is first else f"{(cost.microusd - first.cost.microusd) / MICRO:+,.2f}"
    cells = [one.candidate.on.text, *_costs(asked, cost), against, _range(cost.low.hours, cost.high.hours)]
    cells += [f"{one.priced_gpus.microusd_hour / MICRO:,.2f}", f"{_range(*one.speed, 2)}×", f"{one.break_even:.4f}×"]
    return [*cells, *(f"{part(cost.high):,.2f}" for _, part in parts)]


def _hardware_notes(asked: JobRequest, plan: HardwarePlan) -> list[str]:
    """What an interruption and a load cost; where and why this is not what the sources print; what is not known."""
    from gpuwatch.app.plan_job import load_range

    found, notes = plan.found, []
    if any(one.cost.high.interruptions for one in found):
        notes.append(_loss(plan))
    if (load := asked.job.get("load")) is not None:
        for one in found:
            usd = load_range(one, plan.spec, load)
            notes.append(f"{one.candidate.on.text}: one load of the model costs {_range(usd.low, usd.high, 2)}")
        if asked.seed:
            was = f"{SOURCE_LOAD_USD_GPU_HOUR:.2f}"
            notes.append(
                f"the sources print 2.33 a load (23.30 for ten): that is 4 cards at {was}, not 4.00, for 7 minutes"
            )
    plain = [one.cost.high.usd_for(one.cost.high.work_h) for one in found]
    if asked.seed:
        left_out = "loading, restarts, minimum billing and traffic are left out"
        notes.append(f"price × hours only, as the sources compute; {left_out}")
    elif any(abs(usd - one.cost.microusd / MICRO) >= 0.005 for usd, one in zip(plain, found, strict=True)):
        notes.append(f"the sources count price × hours alone (--seed): {', '.join(f'{usd:,.2f}' for usd in plain)}")
    unknown = dict.fromkeys(text for one in found for text in one.cost.unknown)
    return notes + [f"not in it: {text}, which is not known" for text in unknown]


def _loss(plan: HardwarePlan) -> str:
    interval_h = (plan.spec.checkpoint_s or 0.0) / 3600
    if not interval_h:
        return "without checkpoints an interruption loses all the work: --checkpoint-every"
    most = max(one.priced_gpus.microusd_hour for one in plan.found) / MICRO * interval_h
    return f"one interruption loses at most what is between two checkpoints: {most:,.2f} $"


# --- on offers --------------------------------------------------------------------------------------------------------


def _show_offers(asked: JobRequest, plan: OfferPlan, limit: int, timezone: str | None) -> None:
    """JSON, or in a time zone: a table, cheapest job first."""
    from gpuwatch.app.current_offers import is_old
    from gpuwatch.app.plan_job import offer_plan_json
    from gpuwatch.bootstrap import real_now

    ranking, market = plan.ranking, plan.market
    _note_estimate(plan)
    if timezone is None:
        json_out(offer_plan_json(asked, plan, limit))
    elif ranking.placed:
        _print_offers(asked, plan, limit, local(market.as_of, timezone))
    _note_verdict(asked, [one.cost for one in ranking.placed if not one.too_cheap])
    if ranking.refused:
        note(f"left out, of {ranking.seen} offers: {_refused(ranking)}")
    for line in market.troubles:
        note(line)
    if asked.data is None and is_old(market.as_of, real_now()):
        note("these prices are old: --poll fetches current ones")
    if not ranking.seen:
        in_store = (
            "no such offer is known" if asked.poll else "the store has no such offer: --poll fetches current ones"
        )
        note(in_store if asked.data is None else f"{asked.data} holds no such offer")


def _print_offers(asked: JobRequest, plan: OfferPlan, limit: int, as_of: str) -> None:
    from gpuwatch.domain.planning.job_comparison import TOO_CHEAP

    placed = plan.ranking.placed
    shown = placed[:limit]
    parts = _parts_of([one.cost for one in shown])
    columns = [left("GPU"), right("$ job"), right("hours", drop=2), right("$/GPU-h"), right("$/h", drop=3)]
    columns += [*(right(name, drop=5) for name, _ in parts), left("provider"), left("place", drop=6), right("offer")]
    if asked.credit:
        columns.insert(2, right("- credit", drop=1))
    title = f"{len(placed)} offers by the whole job's cost; {plan.market.source}, {as_of}"
    table(columns, [_offer_cells(asked, one, parts) for one in shown], title=title)
    if len(placed) > limit:
        note(f"… and {len(placed) - limit} more (--limit)")
    note("hours: " + "; ".join(list(dict.fromkeys(one.cost.how for one in shown))[:_REASONS_SHOWN]))
    for text in dict.fromkeys(text for one in shown for text in one.cost.unknown):
        note(f"not in it where an offer does not say: {text}")
    if any(one.too_cheap for one in shown):
        note(
            f"too cheap: under {TOO_CHEAP:.0%} of the median price of that GPU; a mistake, a trap, or a failing machine"
        )
    by_price = min(placed, key=lambda one: one.price.price_microusd_hour / one.offer.gpu_count)
    if (more := by_price.cost.microusd - placed[0].cost.microusd) > 0:
        named = f"{by_price.offer.gpu_count}× {by_price.offer.gpu}, offer {by_price.offer.offer_id}"
        note(f"the lowest GPU price ({named}) would cost {more / MICRO:,.2f} $ more for this job")
    note(METHOD_TEXT)


def _offer_cells(asked: JobRequest, one: JobOffer, parts: _Parts) -> list[str]:
    offer, price, cost = one.offer, one.price.price_microusd_hour / MICRO, one.cost
    cells = [f"{offer.gpu_count}× {offer.gpu}{' spot' if offer.spot else ''}", *_costs(asked, cost)]
    cells += [_range(cost.low.hours, cost.high.hours), f"{price / offer.gpu_count:.3f}", f"{price:.3f}"]
    cells += [f"{part(cost.high):,.2f}" for _, part in parts]
    listed = "" if offer.kind.value == "live" else f" ({offer.kind.value})"
    mark = " (too cheap)" if one.too_cheap else ""
    return [*cells, offer.provider + listed, offer.place or "–", offer.offer_id + mark]


def _refused(ranking: JobRanking) -> str:
    """Why the job cannot be computed, or done, on the other offers."""
    reasons = [f"{count}: {reason}" for reason, count in ranking.refused[:_REASONS_SHOWN]]
    more = sum(count for _, count in ranking.refused[_REASONS_SHOWN:])
    return "; ".join(reasons + ([f"{more} for other reasons"] if more else []))


# --- both -------------------------------------------------------------------------------------------------------------


def _parts_of(costs: Sequence[JobCost]) -> _Parts:
    """The columns that hold anything; work alone is no column of its own."""
    found = [one for one in _PARTS if any(one[1](cost.high) >= 0.005 for cost in costs)]
    return [] if [name for name, _ in found] == ["work"] else found


def _costs(asked: JobRequest, cost: JobCost) -> list[str]:
    """What the job costs, and what the credit leaves of it where there is one."""
    from gpuwatch.app.plan_job import after_credit

    whole = _range(cost.low.microusd / MICRO, cost.microusd / MICRO, 2)
    return [whole, f"{after_credit(cost, asked):,.2f}"] if asked.credit else [whole]


def _range(low: float, high: float, digits: int = 1) -> str:
    shown = f"{low:,.{digits}f}", f"{high:,.{digits}f}"
    return shown[1] if shown[0] == shown[1] else "–".join(shown)
