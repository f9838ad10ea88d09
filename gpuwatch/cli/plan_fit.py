"""`gpuwatch plan fit`: the cheapest class of GPU that fits a task, by live prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, completes, config_option, json_option
from gpuwatch.cli.plan_options import WorkloadOptions, workload_options
from gpuwatch.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan_fit import CurrentPrices
    from gpuwatch.domain.planning.fit import PricedClass, TaskNeeds

_LATENCIES = ("realtime", "interactive", "batch")


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan fit --task inference --vram 14 --latency interactive",
        "gpuwatch plan fit --size-of 70B --method qlora",
        "gpuwatch plan fit --price B200=9.50-12.00 --price 'H100 SXM=3.50-5.50' --against 'H100 SXM'",
    ),
)
@click.option("--task", type=click.Choice(["training", "inference", "any"]), default=None, help="What it is for.")
@click.option("--vram", type=Between(0, 1e6), default=None, metavar="GB", help="That the task fills; see plan size.")
@workload_options(needed=False)
@click.option(
    "--latency",
    type=click.Choice(_LATENCIES),
    default="batch",
    show_default=True,
    help="Of inference, one stream: 50 tokens a second, 10, or any.",
)
@click.option("--max-cards", type=click.IntRange(1, 4096), default=8, show_default=True, help="No more cards.")
@click.option("--any-link", is_flag=True, help="Training on several cards without NVLink is fine.")
@click.option(
    "--gpu", multiple=True, metavar="GPU", help="Only these; may be repeated.", shell_complete=completes("gpus")
)
@click.option(
    "--price", "prices", multiple=True, metavar="GPU=USD[-USD]", help="Per GPU-hour, instead of live ones; repeatable."
)
@click.option("--poll", "--now", "now", is_flag=True, help="Ask the providers instead of the store.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="A file of price rows instead of the store: its newest look.",
)
@click.option("--provider", default=None, help="Only this provider.", shell_complete=completes("providers"))
@click.option(
    "--spot", type=click.Choice(["no", "only", "any"]), default="no", show_default=True, help="Interruptible."
)
@click.option("--listed", is_flag=True, help="List prices, without proof of stock, too.")
@click.option(
    "--by",
    type=click.Choice(["hour", "memory", "compute", "bandwidth"]),
    default=None,
    help="What comes first. Default: compute for training, else the price of an hour.",
)
@click.option(
    "--against",
    default=None,
    metavar="GPU",
    help="How many times dearer, larger and quicker than this one.",
    shell_complete=completes("gpus"),
)
@click.option("--limit", type=click.IntRange(1, 500), default=15, show_default=True, help="Classes shown.")
@click.option("--seed", is_flag=True, help="The sources' own table of classes and prices.")
@json_option
@config_option
def fit(
    task: str | None,
    vram: float | None,
    latency: str,
    max_cards: int,
    any_link: bool,
    gpu: tuple[str, ...],
    prices: tuple[str, ...],
    now: bool,
    data: Path | None,
    provider: str | None,
    spot: str,
    listed: bool,
    by: str | None,
    against: str | None,
    limit: int,
    seed: bool,
    as_json: bool,
    config: str | None,
    **given: Any,
) -> int:
    """The cheapest class of GPU that fits a task: by the hour, per GB, per TFLOP, and per TB/s.

    Exit codes: 0 something fits, 1 nothing that is on offer fits, 2 usage, 3 no price is known, or a provider that was
    asked did not answer.
    """
    from gpuwatch.app.plan_fit import plan_fit_json
    from gpuwatch.cli.output import json_out
    from gpuwatch.cli.plan_fit_rows import print_seed, print_table
    from gpuwatch.domain.planning.fit import CostMeasure, rank_classes

    if sum((bool(prices), now, data is not None)) > 1:
        raise UsageError("prices come from one place: --price, --poll or --data")
    workload = WorkloadOptions(**given)
    needs = _wish(task, vram, workload, latency, max_cards, any_link)
    if seed:
        return print_seed(needs, as_json)
    found = _given(prices) if prices else _prices(config, provider, spot, listed, now, data)
    offers = _only(found, gpu)
    chosen = rank_classes(needs, offers, None if by is None else CostMeasure(by))
    other = None if against is None else _other(against, found)
    if as_json:
        json_out(plan_fit_json(needs, chosen, found, other))
    else:
        print_table(needs, chosen, found, other, limit)
    for trouble in found.troubles:
        click.echo(trouble, err=True)
    if found.troubles or not found.offers:
        return Exit.CANNOT_TELL
    return Exit.DONE if chosen.choices else Exit.FAILED


# --- what is asked for ------------------------------------------------------------------------------------------------


def _wish(
    task: str | None, vram: float | None, workload: WorkloadOptions, latency: str, max_cards: int, any_link: bool
) -> TaskNeeds:
    from gpuwatch.domain.planning.fit import (
        TOKEN_S,
        GpuTask,
        LatencyClass,
        TaskNeeds,
    )

    asked = LatencyClass(latency)
    if workload.params is None and workload.shape is None:
        wanted = GpuTask(task or "any")
        gb, read = vram or 0.0, None
    else:
        if vram is not None:
            raise UsageError("say either --vram or --size-of")
        gb, read, is_training = _sized(workload)
        wanted = GpuTask(task) if task else GpuTask.TRAINING if is_training else GpuTask.INFERENCE
    limit = TOKEN_S[asked]
    if limit is not None and (wanted is not GpuTask.INFERENCE or not gb):
        raise UsageError(f"--latency {latency} is about inference: add --task inference, and --vram or --size-of")
    return TaskNeeds(task=wanted, vram_gb=gb, read_gb=read, token_s=limit, any_link=any_link, max_cards=max_cards)


def _sized(workload: WorkloadOptions) -> tuple[float, float, bool]:
    """GB in all, GB of weights, and whether it trains."""
    from gpuwatch.cli.plan_options import workload_of
    from gpuwatch.domain.planning.memory_need import memory_need

    work = workload_of(workload)
    try:
        needed = memory_need(work)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault
    return needed.gb, needed.parts[0].gb, work.trains


def _given(texts: tuple[str, ...]) -> CurrentPrices:
    from gpuwatch.app.plan_fit import CurrentPrices

    return CurrentPrices(offers=tuple(_given_price(text) for text in texts), as_of=None, source="the prices you gave")


def _given_price(text: str) -> PricedClass:
    from gpuwatch.app.past_prices import gpu_names_of
    from gpuwatch.cli.plan_money import usd
    from gpuwatch.domain.planning.fit import PricedClass

    name, _, price = text.rpartition("=")
    if not name.strip() or not price.strip():
        raise UsageError(f"--price {text!r}: expected GPU=USD per GPU-hour, such as B200=9.50 or B200=9.50-12.00")
    low, dash, high = price.partition("-")
    dearest = usd("--price", high) if dash else None
    if dearest is not None and dearest < usd("--price", low):
        raise UsageError(f"--price {text!r}: expected the lower price first")
    return PricedClass(
        gpu=gpu_names_of(name.strip())[0], cards=1, usd_hour=usd("--price", low), high_usd_hour=dearest, any_number=True
    )


def _prices(
    config: str | None, provider: str | None, spot: str, listed: bool, now: bool, data: Path | None
) -> CurrentPrices:
    from gpuwatch.app.plan_fit import PriceFilter, prices_now
    from gpuwatch.bootstrap.settings_loading import load_settings

    where = PriceFilter(spot={"no": False, "only": True, "any": None}[spot], provider=provider, listed=listed)
    try:
        return prices_now(load_settings(config), where, data, now)
    except StoreError as fault:
        raise type(fault)(f"{fault}; --poll asks the providers, --price takes your own") from fault


def _only(found: CurrentPrices, gpus: tuple[str, ...]) -> list[PricedClass]:
    from gpuwatch.app.past_prices import gpu_names_of

    seen = frozenset(one.gpu for one in found.offers)
    names = {name for text in gpus for name in gpu_names_of(text, seen)}
    return [one for one in found.offers if not gpus or one.gpu in names]


def _other(text: str, found: CurrentPrices) -> PricedClass:
    """The cheapest of the class that the others are compared with."""
    from gpuwatch.app.plan_fit import cheapest

    return cheapest(found, text, 0)
