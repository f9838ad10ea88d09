"""`gpuwatch plan cases` and `plan hybrid`: the best provider per use case; training and inference on two machines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import CURRENT_DATA, POLL, completes, config_option, json_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.plan.plan import Figure
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars, usd

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.app.market.current_offers import CurrentOffers
    from gpuwatch.domain.plan.job_comparison import JobOffer
    from gpuwatch.settings import Settings

_CASES = (left("case"), left("provider"), left("GPUs"), right("job"), right("hours", drop=1), left("next", drop=2))
_HYBRID = (left(""), left("GPUs"), left("provider"), right("job"), right("hours", drop=1), left("offer", drop=2))


def _market_options(command: Callable[..., Any]) -> Callable[..., Any]:
    provider = click.option(
        "--provider", multiple=True, metavar="NAME", help="Only this provider.", shell_complete=completes("providers")
    )
    for option in (config_option, json_option, CURRENT_DATA, POLL, provider):
        command = option(command)
    return command


@click.command(cls=Command, examples=("gpuwatch plan cases", "gpuwatch plan cases --poll"))
@_market_options
def cases(provider: tuple[str, ...], poll: bool, data: Path | None, as_json: bool, config: str | None) -> int:
    """Show the cheapest provider for each use case, by current offers.

    Considers on-demand offers that hold the workload; excludes implausibly cheap and unreliable ones. Cost and hours
    are for the whole job, based on published measurements.

    Exit codes: 0 done, 1 no offer fits any case, 2 usage, 3 no price is known, or a provider did not answer.
    """
    from gpuwatch.app.plan.plan_cases import market_of, plan_cases, plan_cases_json
    from gpuwatch.bootstrap.settings_loading import load_settings

    settings = load_settings(config)
    market = market_of(settings, providers=provider, spot=False, poll=poll, data=data)
    case_offers = plan_cases(market)
    if as_json:
        json_out(plan_cases_json(market, case_offers))
    elif market.offers:
        cheapest = Counter(case_row.best[0].offer.provider for case_row in case_offers if case_row.best)
        for name, count in cheapest.most_common(1):
            click.echo(f"{name} is the cheapest in {count} of {count_text(len(case_offers), 'case')}.\n")
        rows = [(case_row.case.name, *_case_cells(case_row.best)) for case_row in case_offers]
        table(_CASES, rows, title=_title(market, settings))
    return _exit(market, any(case_row.best for case_row in case_offers))


def _case_cells(best: tuple[JobOffer, ...]) -> tuple[str, ...]:
    if not best:
        return "–", "nothing fits", "–", "–", "–"
    first, *others = best
    following = f"{others[0].offer.provider} {_span(others[0])}" if others else "–"
    return first.offer.provider, _gpus(first), _span(first), _hours(first), following


@click.command(
    cls=Command,
    examples=("gpuwatch plan hybrid --size-of 8B --method qlora --tokens 100M --infer-tokens 1B --poll",),
)
@click.option("--size-of", required=True, metavar="N|MODEL", help='Parameters ("8B") or a model.')
@click.option("--method", type=click.Choice(["full", "lora", "qlora"]), default="qlora", help="Training method.")
@click.option("--tokens", type=Figure(), required=True, help='Tokens to train on: "100M".')
@click.option("--infer-tokens", type=Figure(), required=True, help='Tokens to generate afterwards: "1B".')
@click.option(
    "--infer-batch", type=click.IntRange(1, 4096), default=32, show_default=True, help="Concurrent sequences."
)
@_market_options
def hybrid(
    config: str | None, as_json: bool, provider: tuple[str, ...], poll: bool, data: Path | None, **options: Any
) -> int:
    """Train on one machine and infer on another, each the cheapest, compared with one machine for both.

    Exit codes: 0 done, 1 no offer fits, 2 usage, 3 no price is known, or a provider did not answer.
    """
    from gpuwatch.app.plan.plan_cases import WorkCase, market_of, plan_hybrid, plan_hybrid_json
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.domain.plan.architectures.language_models import model_of
    from gpuwatch.domain.plan.roofline import TrainingMethod
    from gpuwatch.domain.plan.workload import Workload
    from gpuwatch.errors import UsageError

    try:
        model = model_of(options["size_of"])
    except ValueError as fault:
        raise UsageError(f"--size-of {options['size_of']!r}: {fault}") from fault
    settings = load_settings(config)
    market = market_of(settings, providers=provider, spot=False, poll=poll, data=data)
    train = Workload(model=model, method=TrainingMethod(options["method"]))
    infer = Workload(model=model, method=TrainingMethod.INFERENCE, batch=options["infer_batch"])
    plan = plan_hybrid(
        market, WorkCase("train", train, options["tokens"]), WorkCase("infer", infer, options["infer_tokens"])
    )
    if as_json:
        json_out(plan_hybrid_json(market, plan))
    elif market.offers:
        parts = [("train", plan.train), ("infer", plan.infer)]
        parts += [
            (f"{name}, both on one", job_offer)
            for name, job_offer in zip(("train", "infer"), plan.both or (), strict=False)
        ]
        if plan.separate_usd is not None and plan.combined_usd is not None:
            better = "Use two machines" if plan.separate_usd < plan.combined_usd else "Use one machine"
            two, one = dollars(plan.separate_usd), dollars(plan.combined_usd)
            click.echo(f"{better}: {two} on two, {one} on one, both worst case.\n")
        table(_HYBRID, [(name, *_part_cells(job_offer)) for name, job_offer in parts], title=_title(market, settings))
    return _exit(market, plan.separate_usd is not None)


def _part_cells(job_offer: JobOffer | None) -> tuple[str, ...]:
    if job_offer is None:
        return "nothing fits", "–", "–", "–", "–"
    return _gpus(job_offer), job_offer.offer.provider, _span(job_offer), _hours(job_offer), job_offer.offer.offer_id


def _exit(market: CurrentOffers, fits: bool) -> int:
    for line in market.errors:
        note(line)
    if not market.offers:
        note("no prices known: fetch current ones with --poll")
    if market.errors or not market.offers:
        return Exit.CANNOT_TELL
    return Exit.DONE if fits else Exit.FAILED


def _title(market: CurrentOffers, settings: Settings) -> str:
    return f"{count_text(len(market.offers), 'offer')} of {market.source}, {local(market.as_of, settings.timezone)}"


def _gpus(job_offer: JobOffer) -> str:
    return f"{job_offer.offer.gpu_count}× {job_offer.offer.gpu}"


def _span(job_offer: JobOffer) -> str:
    return f"{dollars(usd(job_offer.cost.low.microusd))}–{dollars(usd(job_offer.cost.microusd))}"


def _hours(job_offer: JobOffer) -> str:
    return f"{job_offer.cost.low.hours:,.1f}–{job_offer.cost.high.hours:,.1f}"
