"""The output of `gpuwatch plan job`: costs on given hardware, or offers ranked by the cost of the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.app.history.svg_charts import range_chart
from gpuwatch.cli.base import wants_method
from gpuwatch.cli.html import recorded_page
from gpuwatch.cli.output import Recording, echo, json_out, local, note
from gpuwatch.cli.plan.plan import put_watch
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.market.figure_text import count_text, percent_text
from gpuwatch.domain.market.money import MICRO, dollars, per_gpu_hour, per_hour, usd
from gpuwatch.domain.plan.job_hours import fp8_text
from gpuwatch.domain.plan.job_total import JOB_COST_METHOD_TEXT, JobBill, JobCost

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_job import HardwarePlan, JobNeeds, OfferPlan
    from gpuwatch.domain.jobs.job_request import JobRequest
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.domain.plan.job_comparison import ComparedHardware, Feasibility, JobOffer, JobRanking

_REASONS_SHOWN = 4
_Parts = Sequence[tuple[str, Callable[[JobBill], float]]]
_PARTS: _Parts = (
    ("work", lambda bill: bill.usd_for(bill.work_h)),
    ("ready", lambda bill: bill.usd_for(bill.ready_h)),
    ("restarts", lambda bill: bill.usd_for(bill.restart_h + bill.lost_h)),
    ("least", lambda bill: bill.usd_for(bill.minimum_h)),
    ("traffic", lambda bill: bill.traffic_usd),
    ("people", lambda bill: bill.labour_usd),
    ("prepare", lambda bill: bill.prepare_usd),
    ("debug", lambda bill: bill.usd_for(bill.debug_h)),
    ("(disk)", lambda bill: bill.disk_usd),
)


def job_page(request: JobRequest, costs: Sequence[tuple[str, JobCost]], recording: Recording) -> str:
    """The page of a plan: the cost of each item, best to worst case, and everything that was printed."""
    from gpuwatch.domain.plan.job_comparison import Feasibility

    bars = [(name, cost.low.microusd / MICRO, cost.microusd / MICRO) for name, cost in costs]
    heading = "job cost" + (f": {request.model.name}" if request.model else "")
    verdict = [note for note in recording.notes if note.startswith(tuple(Feasibility))]
    if not verdict:
        cheapest = min((cost.microusd for _, cost in costs), default=None)
        cost = "no offer can run it" if cheapest is None else f"{dollars(usd(cheapest))} in the worst case"
        verdict = [f"cheapest: {cost} ({len(costs)} shown; add --under and --by for a verdict)"]
    chart = range_chart("USD for the whole job, best to worst case", bars, request.max_cost)
    return recorded_page(heading, verdict, [chart], recording)


def _note_estimate(plan: HardwarePlan | OfferPlan) -> None:
    if plan.spec.speed is not None:
        note(
            "the speed is estimated from published measurements (docs/plan.md); "
            'set tokens_per_s="4x H100=2500" as you measured, or utilisation, for narrower figures'
        )


def _note_needs(request: JobRequest, needs: JobNeeds) -> None:
    """Values derived from the model, because no option sets them."""
    low, high = (f"{seconds / 60:.1f}" for seconds in needs.load_s)
    texts = {
        "download_gb": f"{needs.traffic.download_gb:,.0f} GB to download (download_gb)",
        "disk_gb": f"{needs.disk_gb or 0:,.0f} GB of disk (disk_gb)",
        "load_s": f"{low if low == high else f'{low}–{high}'} min to load the model (load)",
    }
    if needs.derived:
        name = request.model.name if request.model else "the model"
        note(f"derived from {name}: {', '.join(texts[need] for need in needs.derived)}")


def _note_verdict(request: JobRequest, plan: HardwarePlan | OfferPlan, costs: Sequence[JobCost]) -> Feasibility | None:
    """Print whether the job is feasible, with the figures behind the verdict."""
    from gpuwatch.app.plan.plan_job import OfferPlan, cheapest_at_any_length, job_verdict
    from gpuwatch.domain.plan.job_comparison import feasibility

    verdict, within_s = job_verdict(request, plan.spec, costs), plan.spec.within_s
    if verdict is None:
        return None
    first = [cost for cost in costs if feasibility(cost, request.max_usd, within_s) is verdict]
    best = min(first, key=lambda cost: cost.microusd, default=None)
    if best is None and isinstance(plan, OfferPlan):
        best = cheapest_at_any_length(request, plan)
    limits = [] if request.max_cost is None else [f"for {dollars(request.max_cost)}"]
    figures = []
    if best is not None and request.max_cost is not None:
        figures.append(f"it costs {_dollar_range(best.low.microusd / MICRO, best.microusd / MICRO)}")
    if within_s is not None:
        limits.append(f"within {within_s / 3600:,.4g} h")
    if best is not None and within_s is not None:
        figures.append(f"it takes {_range(best.low.hours, best.high.hours)} h")
    note(f"{verdict.value} {' '.join(limits)}{': ' if figures else ''}{', '.join(figures)}")
    return verdict


# --- on given hardware ------------------------------------------------------------------------------------------------


def show_hardware(request: JobRequest, plan: HardwarePlan, as_json: bool) -> Feasibility | None:
    """A table and the verdict; the others are compared with the first line."""
    from gpuwatch.app.plan.plan_job_json import hardware_plan_json, hardware_sentence

    costs = [hardware.cost for hardware in plan.compared]
    _note_estimate(plan)
    if as_json:
        json_out(hardware_plan_json(request, plan))
        return _note_verdict(request, plan, costs)
    echo(f"{hardware_sentence(plan)}\n")
    compared = plan.compared
    parts = _parts_of([hardware.cost for hardware in compared])
    columns = [left("cards"), right("job"), right("against 1st", drop=1), right("hours", drop=2), right("price")]
    columns += [right("speed", drop=3), right("even at", drop=4), *(right(name, drop=5) for name, _ in parts)]
    if request.credit:
        columns.insert(2, right("- credit", drop=1))
    table(columns, [_hardware_cells(request, hardware, compared[0], parts) for hardware in compared])
    for line in _hardware_notes(request, plan):
        note(line)
    _note_needs(request, plan.needs)
    return _note_verdict(request, plan, costs)


def _hardware_cells(
    request: JobRequest, hardware: ComparedHardware, first: ComparedHardware, parts: _Parts
) -> list[str]:
    cost = hardware.cost
    more = usd(cost.microusd - first.cost.microusd)
    against = "–" if hardware is first else f"{'+' if more > 0 else ''}{dollars(more)}"
    cells = [hardware.candidate.on.text, *_costs(request, cost), against, _range(cost.low.hours, cost.high.hours)]
    cells += [
        per_hour(usd(hardware.priced_gpus.microusd_hour), most=2),
        f"{_range(*hardware.speed, 2)}×",
        f"{hardware.break_even:.4f}×",
    ]
    return [*cells, *(dollars(part(cost.high)) for _, part in parts)]


def _hardware_notes(request: JobRequest, plan: HardwarePlan) -> list[str]:
    """The cost of an interruption and of a load; where and why the result differs from the sources; what is unknown."""
    compared = plan.compared
    notes = [warning for hardware in compared if (warning := hardware.candidate.warning) is not None]
    if any(hardware.cost.high.interruptions for hardware in compared):
        notes.append(_loss(plan))
    for hardware in compared:
        name = hardware.candidate.on.text
        if stored := fp8_text(plan.spec, hardware.priced_gpus.gpu):
            notes.append(stored)
        notes += _cost_notes(name, request, plan.needs, hardware.priced_gpus.microusd_hour, hardware.cost)
    plain = [hardware.cost.high.usd_for(hardware.cost.high.work_h) for hardware in compared]
    if any(abs(cost - hardware.cost.microusd / MICRO) >= 0.005 for cost, hardware in zip(plain, compared, strict=True)):
        notes.append(f"price × hours only, as the sources calculate: {', '.join(map(dollars, plain))}")
    unknown = dict.fromkeys(text for hardware in compared for text in hardware.cost.unknown)
    return notes + [f"excludes {text}, which is unknown" for text in unknown]


def _cost_notes(name: str, request: JobRequest, needs: JobNeeds, microusd_hour: int, cost: JobCost) -> list[str]:
    """What loading costs, and the share of preparation and debugging."""
    from gpuwatch.app.plan.plan_job import loading_cost

    notes, loading = [], loading_cost(request, needs, microusd_hour)
    if loading is not None and {"load", "cached_load", "restarts_per_day"} & request.model_fields_set:
        per_day, once, cached = loading.per_day, loading.once, loading.cached
        line = f"{name}: one load of the model costs {_dollar_range(*once)}"
        if per_day:
            line += f", {per_day:g} a day {_dollar_range(per_day * once.low, per_day * once.high)}"
        if cached is not None:
            line += f"; with its files on the machine {_dollar_range(*cached)}"
            if per_day:
                line += f", {per_day:g} a day {_dollar_range(per_day * cached.low, per_day * cached.high)}"
        notes.append(line)
    share = cost.high.preparation_share
    if share is not None:
        notes.append(f"{name}: preparation and debugging are {percent_text(share, 0)} of the cost (the articles: 60 %)")
    return notes


def _loss(plan: HardwarePlan) -> str:
    interval_h = (plan.spec.checkpoint_s or 0.0) / 3600
    if not interval_h:
        return "without checkpoints, an interruption loses all work: set checkpoint_every"
    highest_usd = max(hardware.priced_gpus.microusd_hour for hardware in plan.compared) / MICRO * interval_h
    return f"an interruption loses at most the work between two checkpoints: {dollars(highest_usd)}"


def show_changes(request: JobRequest, as_json: bool) -> None:
    """What one change each does to the hours and the memory of the job on its first cards."""
    from gpuwatch.app.plan.what_if import changes_json, changes_sentence, what_changes

    changes = what_changes(request)
    if as_json:
        json_out(changes_json(request, changes))
        return
    first = changes[0]
    echo(f"{changes_sentence(request, changes)}\n")
    columns = [left("change"), right("hours"), right("time"), right("memory"), left("fits"), text("rule", drop=1)]
    rows = []
    for change in changes:
        times, hours = change.times(first), change.hours
        rows.append([
            change.name,
            "–" if hours is None else _range(hours.low, hours.high),
            "–" if times is None else f"{times:.2f}×",
            f"{change.memory_gb:,.1f} GB",
            "?" if change.fits is None else "yes" if change.fits else "no",
            change.why_not or change.rule,
        ])  # fmt: skip
    table(columns, rows)
    note("each row is the plan of the same job with one thing changed; time: in the middle of the range (docs/plan.md)")


# --- on offers --------------------------------------------------------------------------------------------------------


def show_offers(request: JobRequest, plan: OfferPlan, timezone: str | None) -> Feasibility | None:
    """JSON, or for a time zone a table, cheapest job first, with the verdict."""
    from gpuwatch.app.market.current_offers import is_old
    from gpuwatch.app.plan.plan_job_json import offer_plan_json, offers_sentence
    from gpuwatch.bootstrap import real_now

    ranking, market = plan.ranking, plan.market
    _note_estimate(plan)
    if timezone is None:
        json_out(offer_plan_json(request, plan))
    elif (sentence := offers_sentence(plan)) is not None:
        echo(f"{sentence}\n")
        _print_offers(request, plan, timezone)
    _note_needs(request, plan.needs)
    verdict = _note_verdict(request, plan, plan.costs)
    if ranking.refused:
        note(f"excluded, of {count_text(ranking.seen, 'offer')}: {_refused_text(ranking)}")
    for line in market.errors:
        note(line)
    if request.data is None and is_old(market.as_of, real_now()):
        note("these prices are outdated: fetch current ones with --poll")
    if not ranking.seen:
        in_store = "no such offer" if request.poll else "the store has no such offer: fetch current ones with --poll"
        note(in_store if request.data is None else f"{request.data} has no such offer")
    return verdict


def show_watch(
    request: JobRequest, plan: OfferPlan, name: str, config: str | None, *, write: bool
) -> Feasibility | None:
    """The watch for the plan, as TOML or as a line that says where it was added, with the verdict."""
    from gpuwatch.app.plan.plan_watch import implied_watch
    from gpuwatch.domain.plan.job_comparison import Feasibility

    watch_text = implied_watch(name, request, plan)
    _note_needs(request, plan.needs)
    verdict = _note_verdict(request, plan, plan.costs)
    if plan.ranking.refused:
        note(f"excluded, of {count_text(plan.ranking.seen, 'offer')}: {_refused_text(plan.ranking)}")
    for line in plan.market.errors:
        note(line)
    if watch_text is None:
        note(f"no watch: the job is not feasible on any of {count_text(plan.ranking.seen, 'offer')}")
        return verdict or Feasibility.NOT_FEASIBLE
    if verdict is Feasibility.UNCERTAIN:
        note("the watch waits for an offer on which the job is feasible even in the worst case")
    if write:  # otherwise the watch itself, which is printed, states what its limits follow from
        for line in watch_text.splitlines():
            if line.startswith("# "):
                note(line.removeprefix("# "))
    put_watch(name, watch_text, config, write=write)
    return verdict


def _print_offers(request: JobRequest, plan: OfferPlan, timezone: str) -> None:
    from gpuwatch.domain.plan.job_comparison import TOO_CHEAP_TEXT

    placed = plan.ranking.placed
    shown_offers = placed[: request.limit]
    parts = _parts_of([job_offer.cost for job_offer in shown_offers])
    columns = [left("GPU"), right("job"), right("hours", drop=2), right("GPU price"), right("price", drop=3)]
    columns += [*(right(name, drop=5) for name, _ in parts), left("provider"), left("place", drop=6)]
    columns += [right("reliab.", drop=7), left("verified", drop=8), left("until", drop=9), left("link", drop=10)]
    columns.append(left("offer"))
    doubts = any(job_offer.is_doubtful for job_offer in shown_offers)
    if doubts:
        columns.append(text("but", drop=1))
    if request.credit:
        columns.insert(2, right("- credit", drop=1))
    title = (
        f"{count_text(len(placed), 'offer')} by total job cost; {plan.market.source}, "
        f"{local(plan.market.as_of, timezone)}"
    )
    table(
        columns, [_offer_cells(request, job_offer, parts, timezone, doubts) for job_offer in shown_offers], title=title
    )
    if len(placed) > request.limit:
        note(f"… and {len(placed) - request.limit} more (limit)")
    note("hours: " + "; ".join(list(dict.fromkeys(job_offer.cost.how for job_offer in shown_offers))[:_REASONS_SHOWN]))
    first = shown_offers[0]
    name = f"{first.offer.gpu_count}× {first.offer.gpu}"
    for line in _cost_notes(name, request, plan.needs, first.price.price_microusd_hour, first.cost):
        note(line)
    for unknown in dict.fromkeys(unknown for job_offer in shown_offers for unknown in job_offer.cost.unknown):
        note(f"excluded if an offer does not state it: {unknown}")
    if any(job_offer.too_cheap for job_offer in shown_offers):
        note(TOO_CHEAP_TEXT)
    if any(job_offer.is_unlikely for job_offer in shown_offers):
        note("unlikely to finish: reliability is read as the chance to run for a day; checkpoint_every helps")
    by_price = min(placed, key=lambda job_offer: job_offer.price.price_microusd_hour / job_offer.offer.gpu_count)
    if (more := by_price.cost.microusd - placed[0].cost.microusd) > 0:
        offer_text = f"{by_price.offer.gpu_count}× {by_price.offer.gpu}, offer {by_price.offer.offer_id}"
        note(f"the lowest GPU price ({offer_text}) would cost {dollars(usd(more))} more for this job")
    if wants_method():
        note(JOB_COST_METHOD_TEXT)


def _offer_cells(request: JobRequest, job_offer: JobOffer, parts: _Parts, timezone: str, doubts: bool) -> list[str]:
    offer, price, cost = job_offer.offer, job_offer.price.price_microusd_hour / MICRO, job_offer.cost
    cells = [f"{offer.gpu_count}× {offer.gpu}{' spot' if offer.spot else ''}", *_costs(request, cost)]
    cells += [
        _range(cost.low.hours, cost.high.hours),
        per_gpu_hour(price / offer.gpu_count, least=3, most=3),
        per_hour(price, least=3, most=3),
    ]
    cells += [dollars(part(cost.high)) for _, part in parts]
    listed = "" if offer.kind.value == "live" else f" ({offer.kind.value})"
    cells += [offer.provider + listed, offer.place or "–"]
    cells += ["–" if offer.reliability is None else f"{offer.reliability:.1%}"]
    cells += ["–" if offer.verification is None else offer.verification.value]
    cells += ["–" if offer.available_until is None else local(offer.available_until, timezone)[:16], _link(offer)]
    return [*cells, offer.offer_id, *([", ".join(_doubt_texts(job_offer)) or "–"] if doubts else [])]


def _link(offer: Offer) -> str:
    """The interconnect of the GPUs; none for one GPU."""
    from gpuwatch.domain.plan.roofline import card_specs_of, has_fast_link

    specs = card_specs_of(offer.gpu)
    if offer.gpu_count < 2 or specs is None:
        return "–"
    return "NVLink" if has_fast_link(specs, offer.nvlink) else "PCIe"


def _doubt_texts(job_offer: JobOffer) -> list[str]:
    """Why an offer is ranked after the others."""
    doubts = ["too cheap"] if job_offer.too_cheap else []
    if job_offer.is_unlikely:
        doubts.append(f"unlikely to finish: {job_offer.chance or 0:.0%}")
    return doubts


def _refused_text(ranking: JobRanking) -> str:
    """Why the job cannot be computed or run on the other offers."""
    reasons = [f"{count}: {reason}" for reason, count in ranking.refused[:_REASONS_SHOWN]]
    more = sum(count for _, count in ranking.refused[_REASONS_SHOWN:])
    return "; ".join(reasons + ([f"{more} for other reasons"] if more else []))


# --- both -------------------------------------------------------------------------------------------------------------


def _parts_of(costs: Sequence[JobCost]) -> _Parts:
    """The columns that hold values; work needs no column of its own if it is the only part."""
    parts = [part for part in _PARTS if any(part[1](cost.high) >= 0.005 for cost in costs)]
    return [] if [name for name, _ in parts] == ["work"] else parts


def _costs(request: JobRequest, cost: JobCost) -> list[str]:
    """The cost of the job, and the rest after credit if there is any."""
    from gpuwatch.app.plan.plan_job import after_credit

    cost_text = _dollar_range(cost.low.microusd / MICRO, cost.microusd / MICRO)
    return [cost_text, dollars(after_credit(cost, request))] if request.credit else [cost_text]


def _dollar_range(low: float, high: float) -> str:
    return "–".join(dict.fromkeys((dollars(low), dollars(high))))


def _range(low: float, high: float, digits: int = 1) -> str:
    bounds = f"{low:,.{digits}f}", f"{high:,.{digits}f}"
    return bounds[1] if bounds[0] == bounds[1] else "–".join(bounds)
