"""`gpuwatch plan job`: what a job costs, all in, on cards that are named or on real offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, completes, config_option, duration_option, json_option
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.plan_job_options import job_of, job_options
from gpuwatch.cli.plan_size import WorkloadOptions, workload_of, workload_options
from gpuwatch.cli.tables import left, right, table
from gpuwatch.domain.market.pricing import HOURS_A_MONTH, MICRO
from gpuwatch.domain.planning.job import METHOD_TEXT, SOURCE_LOAD_USD_GPU_HOUR, JobBill, JobCost, JobTraffic
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan_job import CurrentOffers
    from gpuwatch.domain.planning.figures import FigureRange
    from gpuwatch.domain.planning.job_comparison import ComparedHardware, HardwareExtras, JobOffer, JobRanking
    from gpuwatch.domain.planning.job_hours import JobSpec

_POLL_S = 60.0
_SHARE = Between(min=0, max=10)
_OFFER_ONLY = ("gpu", "count", "provider", "verified", "data", "poll")
_REASONS_SHOWN = 4
_PARTS: Sequence[tuple[str, Callable[[JobBill], float]]] = (
    ("work", lambda bill: bill.usd_for(bill.work_h)),
    ("ready", lambda bill: bill.usd_for(bill.ready_h)),
    ("restarts", lambda bill: bill.usd_for(bill.restart_h + bill.lost_h)),
    ("least", lambda bill: bill.usd_for(bill.minimum_h)),
    ("traffic", lambda bill: bill.traffic_usd),
    ("(disk)", lambda bill: bill.disk_usd),
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan job '4x A100 @ 1.20 for 72h' '4x H100 @ 3.50 for 24h'",
        "gpuwatch plan job '4x A100 @ 1.20' '4x H100 @ 3.50' --hours 72 --on '4x A100' --speedup '4x H100=2.5'",
        "gpuwatch plan job --size-of 70B --method qlora --tokens 50M --utilisation 0.35 --disk-gb 200",
    ),
)
@click.argument("candidates", nargs=-1, metavar="[CANDIDATE]...")
@job_options
@workload_options(needed=False)
@click.option("--download-gb", type=Between(min=0), default=0.0, help="GB the job downloads.")
@click.option("--upload-gb", type=Between(min=0), default=0.0, help="GB the job uploads.")
@click.option("--disk-gb", type=Between(min=1), default=None, help="GB of disk; part of the price.")
@click.option(
    "--gpu",
    multiple=True,
    metavar="GPU",
    help="Only offers with this GPU; may be repeated.",
    shell_complete=completes("gpus"),
)
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
@click.option("--listed", is_flag=True, help="Include list prices, without proof of stock.")
@click.option("--poll", "--now", "poll", is_flag=True, help="Poll the providers instead of reading the store.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the newest poll of this file instead of the store.",
)
@duration_option("--timeout", "timeout_s", "With --poll: longest wait for all providers. Default: 60s.")
@click.option(
    "--commission", type=_SHARE, default=0.0, help="Commission on top of the candidates' prices, such as 0.2."
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
@click.option("--limit", type=click.IntRange(1, 5000), default=20, show_default=True, help="Number of offers.")
@click.option("--seed", is_flag=True, help="Candidates: price × hours only, as the sources compute.")
@json_option
@config_option
def job(candidates: tuple[str, ...], workload: WorkloadOptions, config: str | None, as_json: bool, **given: Any) -> int:
    """Compute what a job costs in all: work, setup, restarts, minimum billing, traffic.

    Without any, on real offers, cheapest job first:

    Exit codes: 0 done, 1 the job fits no offer, 2 usage, 3 no prices are known, or a provider did not answer.
    """

    spec = _at_some_utilisation(_spec(given | workload._asdict(), workload))
    traffic = JobTraffic(given["download_gb"], given["upload_gb"])
    if candidates:
        return _on_candidates(candidates, spec, traffic, given, as_json)
    if given["seed"]:
        raise UsageError("--seed goes with candidates: the sources name their cards and prices")
    return _on_offers(spec, traffic, given, config, as_json)


def _spec(given: dict[str, Any], chosen: WorkloadOptions) -> JobSpec:
    """The job; with the model's exact shape, if a file says it."""
    from gpuwatch.domain.planning.memory_need import memory_need

    spec = job_of(given, chosen.params)
    if (chosen.params is None and chosen.shape is None) or given["memory_gb"] is not None:
        return spec
    try:
        return msgspec.structs.replace(spec, memory_gb=memory_need(workload_of(chosen)).gb)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault


def _at_some_utilisation(spec: JobSpec) -> JobSpec:
    """Where nothing says how quick it is, all that is published: a range of costs, and the order of offers."""
    from gpuwatch.domain.planning.figures import FigureRange

    if spec.tokens is None or spec.tokens_per_s or spec.flop is None or spec.utilisation is not None:
        return spec
    note(
        "no --utilisation given: computed at 20–60 % of the data sheet's FLOP/s, the range that is published; "
        'yours, or --tokens-per-s "4x H100=2500" as you measured, narrows the figures'
    )
    return msgspec.structs.replace(spec, utilisation=FigureRange(0.2, 0.6))


def _on_candidates(
    texts: Sequence[str], spec: JobSpec, traffic: JobTraffic, given: dict[str, Any], as_json: bool
) -> int:
    from gpuwatch.app.plan_job import job_candidates_json
    from gpuwatch.domain.planning.job_comparison import compare_hardware, parse_hardware

    if any(given[name] for name in _OFFER_ONLY):
        named = next(name for name in _OFFER_ONLY if given[name])
        raise UsageError(f"--{named} goes with real offers: omit the candidates")
    if given["spot"] == "any":
        raise UsageError("--spot any goes with real offers; of candidates, either all are interruptible or none")
    try:
        parsed = [parse_hardware(text) for text in texts]
        extras = _extras(given)
        if given["seed"]:
            spec, traffic, extras = _as_sources(spec, extras)
        found = compare_hardware(spec, parsed, traffic, extras)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault
    shown_for: dict[str, Any] = {"credit_usd": given["credit"], "seed": given["seed"], "load_said": given["load"]}
    if as_json:
        json_out(job_candidates_json(found, spec, **shown_for))
    else:
        _print_candidates(found, spec, **shown_for)
    return Exit.DONE


def _extras(given: dict[str, Any]) -> HardwareExtras:
    from decimal import Decimal

    from gpuwatch.domain.planning.job_comparison import HardwareExtras

    disk = Decimal(repr(given["disk_usd_gb_month"])) * Decimal(repr(given["disk_gb"] or 0.0)) / HOURS_A_MONTH
    return HardwareExtras(
        commission=Decimal(repr(given["commission"])),
        spot=given["spot"] == "only",
        disk_usd_hour=disk,
        download_usd_gb=given["download_usd_gb"],
        upload_usd_gb=given["upload_usd_gb"],
        min_billing_s=given["min_billing_s"] or 0.0,
    )


def _as_sources(spec: JobSpec, extras: HardwareExtras) -> tuple[JobSpec, JobTraffic, HardwareExtras]:
    """Price × hours, and a commission if one is said; nothing else."""
    from gpuwatch.domain.planning.figures import exactly

    plain = msgspec.structs.replace(
        spec, setup_s=exactly(0.0), load_s=exactly(0.0), image_gb=0.0, interruptions_per_day=0.0, memory_gb=0.0
    )
    kind = type(extras)
    return plain, JobTraffic(), kind(commission=extras.commission)


def _on_offers(spec: JobSpec, traffic: JobTraffic, given: dict[str, Any], config: str | None, as_json: bool) -> int:
    from gpuwatch.app.plan_job import FRESH, job_offers_json, offers_now
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.domain.planning.job_comparison import rank_offers
    from gpuwatch.engine.browse import offer_filter

    _is_enough(spec, given)
    settings = load_settings(config)
    wanted = offer_filter(
        given["gpu"],
        count=given["count"],
        spot=given["spot"],
        disk_gb=given["disk_gb"],
        verified=given["verified"],
        kind="all" if given["listed"] else "live",
    )
    within_s = (given["timeout_s"] or _POLL_S) if given["poll"] else None
    found = offers_now(settings, wanted, given["provider"], given["data"], within_s)
    ranking = rank_offers(spec, found.offers, traffic, given["disk_gb"])
    if as_json:
        json_out(job_offers_json(found, ranking, given["limit"], given["credit"]))
    else:
        _print_offers(found, ranking, given["limit"], settings.timezone, given["credit"])
    _print_refused(ranking)
    for line in found.troubles:
        note(line)
    if found.as_of is not None and given["data"] is None and real_now() - found.as_of > FRESH:
        note("these prices are old: --poll fetches current ones")
    if not ranking.seen or found.troubles:
        if not ranking.seen:
            note(_nothing_known(given))
        return Exit.CANNOT_TELL
    return Exit.DONE if ranking.placed else Exit.FAILED


def _is_enough(spec: JobSpec, given: dict[str, Any]) -> None:
    """Reject a job whose cost cannot be computed on any offer."""
    if spec.hours is None and spec.tokens is None:
        raise UsageError(
            "how long does it take? Use --hours with --on, or --tokens with --tokens-per-s or --utilisation"
        )
    if spec.hours is not None and spec.tokens is not None:
        raise UsageError("use either --hours or --tokens")
    if spec.hours is not None and spec.on is None:
        raise UsageError('on which GPUs does it take those hours? Use --on "4x A100"')
    if spec.tokens is not None and not spec.tokens_per_s and spec.flop is None:
        raise UsageError("how fast is it? Use --tokens-per-s, or the model's size: --size-of")
    if given["spot"] != "no" and given["interruptions_per_day"] is None:
        raise UsageError("how often is it interrupted? Use --interruptions-per-day (0: never)")


def _nothing_known(given: dict[str, Any]) -> str:
    if given["data"] is not None:
        return f"{given['data']} holds no such offer"
    return "no such offer is known" if given["poll"] else "the store has no such offer: --poll fetches current ones"


# --- what is printed --------------------------------------------------------------------------------------------------


def _print_candidates(
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


def _print_offers(found: CurrentOffers, ranking: JobRanking, limit: int, timezone: str, credit_usd: float) -> None:
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


def _print_refused(ranking: JobRanking) -> None:
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
