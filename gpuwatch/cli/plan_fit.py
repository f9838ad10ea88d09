"""`gpuwatch plan fit`: the cheapest class of GPU that fits a task, by live prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, completes, config_option, json_option
from gpuwatch.cli.plan_size import WorkloadOptions, workload_options
from gpuwatch.cli.tables import Column, left, right, text
from gpuwatch.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan_fit import CurrentPrices
    from gpuwatch.domain.planning.fit import ClassChoice, CostMeasure, PricedClass, SourceClass, TaskNeeds
    from gpuwatch.domain.planning.fit import RankedClasses as Fitting

_LATENCIES = ("realtime", "interactive", "batch")


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan fit --task inference --vram 14 --latency interactive",
        "gpuwatch plan fit --size-of 70B --method qlora",
        "gpuwatch plan fit --price B200=9.50-12.00 --price 'H100 SXM=3.50-5.50' --against 'H100 SXM'",
    ),
)
@click.option("--task", type=click.Choice(["training", "inference", "any"]), default=None, help="Kind of task.")
@click.option(
    "--vram",
    type=Between(0, 1e6),
    default=None,
    metavar="GB",
    help="GPU memory the task needs, in GB; see `plan size`.",
)
@workload_options(needed=False)
@click.option(
    "--latency",
    type=click.Choice(_LATENCIES),
    default="batch",
    show_default=True,
    help="Inference speed of one stream: 50 tokens per second, 10, or any.",
)
@click.option(
    "--max-cards", type=click.IntRange(1, 4096), default=8, show_default=True, help="Largest number of cards."
)
@click.option("--any-link", is_flag=True, help="Accept several cards without NVLink for training.")
@click.option(
    "--gpu", multiple=True, metavar="GPU", help="Only this GPU; may be repeated.", shell_complete=completes("gpus")
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="GPU=USD[-USD]",
    help="Price per GPU-hour instead of live prices; may be repeated.",
)
@click.option("--poll", "--now", "now", is_flag=True, help="Poll the providers instead of reading the store.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Read the newest poll of this file instead of the store.",
)
@click.option("--provider", default=None, help="Only this provider.", shell_complete=completes("providers"))
@click.option(
    "--spot",
    type=click.Choice(["no", "only", "any"]),
    default="no",
    show_default=True,
    help="Spot (interruptible) offers.",
)
@click.option("--listed", is_flag=True, help="Include list prices, without proof of stock.")
@click.option(
    "--by",
    type=click.Choice(["hour", "memory", "compute", "bandwidth"]),
    default=None,
    help="Order. Default: compute for training, else the hourly price.",
)
@click.option(
    "--against",
    default=None,
    metavar="GPU",
    help="Compare every price with this GPU.",
    shell_complete=completes("gpus"),
)
@click.option("--limit", type=click.IntRange(1, 500), default=15, show_default=True, help="Number of classes.")
@click.option("--seed", is_flag=True, help="Show the sources' own table of classes and prices.")
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
    workload: WorkloadOptions,
) -> int:
    """Find the cheapest class of GPU that fits a task: per hour, per GB, per TFLOP and per TB/s.

    Exit codes: 0 something fits, 1 nothing that is on offer fits, 2 usage, 3 no price is known, or a provider did
    not answer.
    """
    from gpuwatch.app.plan_fit import plan_fit_json
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.output import json_out
    from gpuwatch.domain.planning.fit import CostMeasure, rank_classes

    if sum((bool(prices), now, data is not None)) > 1:
        raise UsageError("prices come from one place: --price, --poll or --data")
    needs = _wish(task, vram, workload, latency, max_cards, any_link)
    if seed:
        return _print_sources(needs, as_json)
    found = _given(prices) if prices else _prices(config, provider, spot, listed, now, data)
    offers = _only(found, gpu)
    chosen = rank_classes(needs, offers, None if by is None else CostMeasure(by))
    other = None if against is None else _other(against, found)
    if as_json:
        json_out(plan_fit_json(needs, chosen, found, other))
    else:
        _print_classes(needs, chosen, found, other, limit)
        _print_source(found, "UTC" if prices else load_settings(config).timezone)
    for trouble in found.troubles:
        click.echo(trouble, err=True)
    if found.troubles or not found.offers:
        return Exit.CANNOT_TELL
    return Exit.DONE if chosen.choices else Exit.FAILED


# --- what is asked for ------------------------------------------------------------------------------------------------


def _wish(
    task: str | None, vram: float | None, workload: WorkloadOptions, latency: str, max_cards: int, any_link: bool
) -> TaskNeeds:
    from gpuwatch.domain.planning.fit import TOKEN_S, GpuTask, LatencyClass, TaskNeeds

    asked = LatencyClass(latency)
    if workload.params is None and workload.shape is None:
        wanted = GpuTask(task or "any")
        gb, read = vram or 0.0, None
    else:
        if vram is not None:
            raise UsageError("use either --vram or --size-of")
        gb, read, is_training = _sized(workload)
        wanted = GpuTask(task) if task else GpuTask.TRAINING if is_training else GpuTask.INFERENCE
    limit = TOKEN_S[asked]
    if limit is not None and (wanted is not GpuTask.INFERENCE or not gb):
        raise UsageError(f"--latency {latency} is about inference: add --task inference, and --vram or --size-of")
    return TaskNeeds(task=wanted, vram_gb=gb, read_gb=read, token_s=limit, any_link=any_link, max_cards=max_cards)


def _sized(workload: WorkloadOptions) -> tuple[float, float, bool]:
    """GB in all, GB of weights, and whether it trains."""
    from gpuwatch.cli.plan_size import workload_of
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
    from gpuwatch.cli.options import parse_usd
    from gpuwatch.domain.planning.fit import PricedClass

    name, _, price = text.rpartition("=")
    if not name.strip() or not price.strip():
        raise UsageError(f"--price {text!r}: expected GPU=USD per GPU-hour, such as B200=9.50 or B200=9.50-12.00")
    low, dash, high = price.partition("-")
    dearest = parse_usd("--price", high) if dash else None
    if dearest is not None and dearest < parse_usd("--price", low):
        raise UsageError(f"--price {text!r}: expected the lower price first")
    return PricedClass(
        gpu=gpu_names_of(name.strip())[0],
        cards=1,
        usd_hour=parse_usd("--price", low),
        high_usd_hour=dearest,
        any_number=True,
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
        raise type(fault)(f"{fault}; --poll fetches current prices, --price takes your own") from fault


def _only(found: CurrentPrices, gpus: tuple[str, ...]) -> list[PricedClass]:
    from gpuwatch.app.past_prices import gpu_names_of

    seen = frozenset(one.gpu for one in found.offers)
    names = {name for text in gpus for name in gpu_names_of(text, seen)}
    return [one for one in found.offers if not gpus or one.gpu in names]


def _other(text: str, found: CurrentPrices) -> PricedClass:
    """The cheapest of the class that the others are compared with."""
    from gpuwatch.app.plan_fit import cheapest

    return cheapest(found, text, 0)


# --- what is printed --------------------------------------------------------------------------------------------------


def _print_classes(
    needs: TaskNeeds, chosen: Fitting, found: CurrentPrices, other: PricedClass | None, limit: int
) -> None:
    """Classes, best first; what is cheapest by each measure; what is left out and why."""
    from gpuwatch.cli.tables import table

    if chosen.choices:
        rows = [_row(needs, one, other) for one in chosen.choices[:limit]]
        table(_columns(needs, other), rows, title=_title(needs, found))
        if len(chosen.choices) > limit:
            click.echo(f"… and {len(chosen.choices) - limit} more (--limit)")
        click.echo()
        click.echo(_bests(chosen))
    elif found.offers:
        click.echo("No offer fits.")
    for why, gpus in chosen.left_out.items():
        click.echo(f"left out, {why}: {_few(gpus)}")


def _title(needs: TaskNeeds, found: CurrentPrices) -> str:
    what = f"{needs.task.value}" if needs.task.value != "any" else "any task"
    size = f", {needs.vram_gb:,.1f} GB" if needs.vram_gb else ""
    quick = f", a token within {needs.token_s * 1000:.0f} ms" if needs.token_s else ""
    return f"{what}{size}{quick}: cheapest first"


def _columns(needs: TaskNeeds, other: PricedClass | None) -> tuple[Column, ...]:
    token = (right("ms/token", drop=2),) if _tells_tokens(needs) else ()
    against = (right(f"× {other.gpu}", drop=2),) if other else ()
    return (
        left("offer"),
        left("where", drop=1),
        right("$/h"),
        right("$/GPU-h"),
        right("$/GB-h", drop=4),
        right("$/TFLOP-h", drop=3),
        right("$/(TB/s)-h", drop=5),
        *token,
        *against,
        text("", drop=6),
    )


def _tells_tokens(needs: TaskNeeds) -> bool:
    return needs.task.value == "inference" and needs.vram_gb > 0


def _row(needs: TaskNeeds, one: ClassChoice, other: PricedClass | None) -> tuple[str, ...]:
    from gpuwatch.domain.planning.fit import CostMeasure, price_ratio, remarks

    token = ("–" if one.token_s is None else f"{one.token_s * 1000:.1f}",) if _tells_tokens(needs) else ()
    against: tuple[str, ...] = ()
    if other is not None:
        low, high = price_ratio(one.priced, other)
        against = (f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}–{high:.2f}",)
    return (
        f"{one.priced.cards}× {one.gpu.name}{' spot' if one.priced.spot else ''}",
        one.priced.provider or "–",
        f"{one.usd_hour:,.3f}",
        f"{one.usd_hour / one.priced.cards:,.3f}",
        *(_measure(one, by) for by in (CostMeasure.MEMORY, CostMeasure.COMPUTE, CostMeasure.BANDWIDTH)),
        *token,
        *against,
        ", ".join(remarks(needs, one.gpu)),
    )


def _measure(one: ClassChoice, by: CostMeasure) -> str:
    value = one.per(by)
    return "–" if value is None else f"{value:.3f}" if by.value == "bandwidth" else f"{value:.5f}"


def _bests(chosen: Fitting) -> str:
    from gpuwatch.domain.planning.fit import CostMeasure

    words = {
        CostMeasure.HOUR: "by the hour",
        CostMeasure.MEMORY: "per GB",
        CostMeasure.COMPUTE: "per TFLOP",
        CostMeasure.BANDWIDTH: "per TB/s",
    }
    named = [f"{words[by]} {best.gpu.name}" for by in words if (best := chosen.best(by)) is not None]
    return f"cheapest {', '.join(named)}"


def _few(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _print_source(found: CurrentPrices, timezone: str) -> None:
    from gpuwatch.app.plan_fit import METHOD
    from gpuwatch.bootstrap import real_now
    from gpuwatch.cli.output import local, note

    if not found.offers:
        note(f"not enough data: {found.source}: no price; --poll fetches current prices, --price takes your own")
        note(METHOD)
        return
    as_of = "" if found.as_of is None else f", as of {local(found.as_of, timezone)}"
    old = " (old: --poll fetches current ones)" if found.is_old(real_now()) else ""
    note(f"{len(found.offers)} prices of {found.source}{as_of}{old}, commission included")
    note(METHOD)


def _print_sources(needs: TaskNeeds, as_json: bool) -> int:
    """The sources' table, with what does not add up in it."""
    from gpuwatch.app.plan_fit import plan_fit_sources_json
    from gpuwatch.domain.planning.fit import source_classes, source_ratio

    found = source_classes(needs.task, needs.vram_gb)
    b200, a100 = source_ratio("B200", "H100"), source_ratio("A100", "T4")
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(plan_fit_sources_json(found, {"B200 : H100": b200, "A100 : T4": a100}))
        return Exit.DONE
    from gpuwatch.cli.output import note
    from gpuwatch.cli.tables import table

    table(_SEED_COLUMNS, [_seed_row(one) for one in found])
    click.echo()
    click.echo(f"B200 : H100 = {b200[0]:.2f}–{b200[1]:.2f} times the price for 2.4 times the memory")
    click.echo(f"A100 : T4 = {a100[0]:.1f} times the price")
    note("the source says 2.5 times, or as much as 3 H100, of the first, and 5 to 7 times of the second")
    return Exit.DONE


_SEED_COLUMNS = (left("class"), left("for"), right("GB"), right("$/GPU-h"), left("source's"))


def _seed_row(one: SourceClass) -> tuple[str, ...]:
    task = "both" if one.task.value == "any" else one.task.value
    high = "" if one.high is None else f"–{one.high:.3f}"
    return one.gpu, task, str(one.memory_gb), "–" if one.low is None else f"{one.low:.3f}{high}", one.source
