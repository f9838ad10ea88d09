"""`gpuwatch plan fit`: the cheapest class of GPU that fits a task, by live prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from gpuwatch.app.history.svg_charts import range_chart
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, refuse_given
from gpuwatch.cli.html import html_option, recorded_page, refuse_html_with, save_page
from gpuwatch.cli.options import (
    CURRENT_DATA,
    LISTED,
    POLL,
    SPOT_CHOICES,
    Between,
    Usd,
    completes,
    config_option,
    gpu_option,
    json_option,
    value_option,
)
from gpuwatch.cli.output import Recording, echo, json_out, local, note, record_output
from gpuwatch.cli.plan.plan import ANY_PRICE, put_watch, refuse_watch_with, watch_options
from gpuwatch.cli.plan.plan_size import note_model, refuse_ignored_workload, workload_options
from gpuwatch.cli.terminal_tables import Column, left, right, table, text
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.plan.fit import (
    FIT_METHOD_TEXT,
    SOURCE_CLASSES,
    CostMeasure,
    GpuTask,
    PricedClass,
    price_ratio,
    remarks,
    source_classes,
    source_ratio,
)
from gpuwatch.domain.plan.job_comparison import TOO_CHEAP_TEXT
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_fit import FitPlan, FitRequest
    from gpuwatch.domain.plan.fit import ClassChoice, RankedClasses, SourceClass, TaskNeeds
    from gpuwatch.domain.plan.memory_need import WorkloadRequest

_CHEAPEST_BY = {
    CostMeasure.HOUR: "per hour",
    CostMeasure.MEMORY: "per GB",
    CostMeasure.COMPUTE: "per TFLOP",
    CostMeasure.BANDWIDTH: "per TB/s",
}
_SEED_COLUMNS = (left("class"), left("for"), right("GiB"), right("$/GPU-h"), left("source's"))


def _prices(_ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[PricedClass, ...]:
    return tuple(_price(text, param) for text in texts)


def _price(text: str, param: click.Parameter) -> PricedClass:
    name, _, price = text.rpartition("=")
    if not name.strip() or not price.strip():
        raise UsageError(f"--price {text!r}: expected GPU=USD per GPU-hour, such as B200=9.50 or B200=9.50-12.00")
    low, *high = [Usd().convert(bound, param, None) for bound in price.split("-", maxsplit=1)]
    if high and high[0] < low:
        raise UsageError(f"--price {text!r}: expected the lower price first")
    return PricedClass(
        gpu=name.strip(), cards=1, usd_hour=low, high_usd_hour=high[0] if high else None, any_number=True
    )


_OF_PRICES = (
    "prices",
    "poll",
    "data",
    "provider",
    "spot",
    "listed",
    "by",
    "against",
    "gpu",
    "limit",
    "any_price",
    "watch",
    "html",
)


def _refuse_ignored(workload: WorkloadRequest, values: dict[str, Any], seed: bool) -> None:
    """Reject options that would have no effect. Raises UsageError."""
    if seed:
        refuse_given("cannot be combined with --seed, the sources' own table", *_OF_PRICES, "latency", "any_link")
    if values["prices"]:
        refuse_given("applies to offers: omit --price", "provider", "spot", "listed", "any_price")
    if values["task"] == "inference" and workload.method is None:
        workload = replace(workload, method="inference")
    refuse_ignored_workload(workload, "--size-of or --shape")
    note_model(workload)
    if values["task"] == "inference" or workload.method == "inference":
        refuse_given("applies to training only", "any_link")


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan fit --task inference --vram 14 --latency interactive",
        "gpuwatch plan fit --size-of 70B --method qlora",
        "gpuwatch plan fit --price B200=9.50-12.00 --price 'H100 SXM=3.50-5.50' --against 'H100 SXM'",
    ),
)
@value_option("--task", click.Choice(["training", "inference", "any"]), "Kind of task.")
@value_option(
    "--vram", Between(0, 1e6), "GPU memory the task needs, in GB; see `plan size`.", name="vram_gb", metavar="GB"
)
@workload_options(needed=False)
@value_option(
    "--latency",
    click.Choice(["realtime", "interactive", "batch"]),
    "Inference speed of one stream: 50 tokens per second, 10, or any.",
    "batch",
)
@value_option("--max-cards", click.IntRange(1, 4096), "Largest number of cards.", 8)
@click.option("--any-link", is_flag=True, help="For training, accept several cards without NVLink.")
@gpu_option("--gpu", "Only this GPU; may be repeated.", multiple=True)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="GPU=USD[-USD]",
    callback=_prices,
    help="Price per GPU-hour to use instead of live prices; may be repeated.",
)
@POLL
@CURRENT_DATA
@click.option("--provider", default=None, help="Only this provider.", shell_complete=completes("providers"))
@value_option("--spot", click.Choice(SPOT_CHOICES), "Spot (interruptible) offers.", "no")
@LISTED
@value_option(
    "--by",
    click.Choice(["hour", "memory", "compute", "bandwidth"]),
    "Sort order. Default: compute for training, else the hourly price.",
)
@gpu_option("--against", "Compare every price with this GPU.")
@ANY_PRICE
@value_option("--limit", click.IntRange(1, 500), "Number of classes.", 15)
@click.option("--seed", is_flag=True, help="Show the sources' own table of classes and prices.")
@watch_options("Print the [[watch]] for the best class at its price, instead of the classes.")
@html_option
@json_option
@config_option
def fit(
    workload: WorkloadRequest,
    limit: int,
    seed: bool,
    watch: str | None,
    write: bool,
    html: Path | None,
    as_json: bool,
    config: str | None,
    **values: Any,
) -> int:
    """Find the cheapest class of GPU that fits a task: per hour, per GB, per TFLOP and per TB/s.

    Exit codes: 0 something fits, 1 no offer fits, 2 usage, 3 no price is known, or a provider did not answer.
    """
    from gpuwatch.app.plan.plan_fit import FitRequest, plan_fit, plan_fit_json, task_needs
    from gpuwatch.bootstrap.settings_loading import load_settings

    _refuse_ignored(workload, values, seed)
    refuse_watch_with(watch, write=write, as_json=as_json)
    refuse_html_with(html, as_data=as_json or watch is not None)
    request = FitRequest(workload=workload, **values)
    if seed:
        return _print_sources(task_needs(request), as_json)
    plan = plan_fit(request, lambda: load_settings(config))
    if watch is not None:
        _print_watch(watch, request, plan, config, write=write)
    elif as_json:
        json_out(plan_fit_json(plan))
    else:
        with record_output() as recording:
            _print_classes(plan, limit)
            _print_source(plan, "UTC" if request.prices else load_settings(config).timezone)
        if html:
            save_page(html, _page(plan, limit, recording))
    for error in plan.errors:
        note(error)
    if plan.errors or not plan.prices:
        return Exit.CANNOT_TELL
    return Exit.DONE if plan.ranked.choices else Exit.FAILED


def _print_watch(name: str, request: FitRequest, plan: FitPlan, config: str | None, *, write: bool) -> None:
    from gpuwatch.app.plan.plan_watch import fit_watch

    watch_text = fit_watch(name, request, plan)
    if watch_text is None:
        note("no watch: no offer fits at a plausible price")
        return
    put_watch(name, watch_text, config, write=write)


def _page(plan: FitPlan, limit: int, recording: Recording) -> str:
    """The cheapest offer of each class, and everything that was printed."""
    bars = [
        (
            f"{choice.priced.cards}× {choice.gpu.name}",
            float(choice.priced.usd_hour),
            float(choice.priced.high_usd_hour or choice.usd_hour),
        )
        for choice in plan.ranked.choices[:limit]
    ]
    verdict = [_best_lines(plan.ranked)] if bars else ["No offer fits."]
    return recorded_page(_title(plan.needs), verdict, [range_chart("USD per hour of the whole offer", bars)], recording)


def _print_classes(plan: FitPlan, limit: int) -> None:
    """Classes, best first; the cheapest by each measure; what is excluded and why."""
    choices = plan.ranked.choices
    if choices:
        shows_tokens = plan.needs.task is GpuTask.INFERENCE and plan.needs.vram_gb > 0
        cells = [_cells(plan, choice, shows_tokens) for choice in choices[:limit]]
        table(_columns(plan, shows_tokens), cells, title=_title(plan.needs))
        if len(choices) > limit:
            echo(f"… and {len(choices) - limit} more (--limit)")
        echo("")
        echo(_best_lines(plan.ranked))
        if any(choice.too_cheap for choice in choices[:limit]):
            note(TOO_CHEAP_TEXT)
    elif plan.prices:
        echo("No offer fits.")
    for reason, gpus in plan.ranked.left_out.items():
        more = f" and {len(gpus) - 8} more" if len(gpus) > 8 else ""
        echo(f"left out, {reason}: {', '.join(gpus[:8])}{more}")


def _title(needs: TaskNeeds) -> str:
    task_name = "any task" if needs.task is GpuTask.ANY else needs.task.value
    size = f", {needs.vram_gb:,.1f} GB" if needs.vram_gb else ""
    token_text = f", a token within {needs.token_s * 1000:.0f} ms" if needs.token_s else ""
    return f"{task_name}{size}{token_text}: cheapest first"


def _columns(plan: FitPlan, shows_tokens: bool) -> tuple[Column, ...]:
    token = (right("ms/token", drop=2),) if shows_tokens else ()
    against = (right(f"× {plan.against.gpu}", drop=2),) if plan.against else ()
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


def _token_ms(choice: ClassChoice) -> str:
    if choice.token_s is None:
        return "–"
    low, high = (f"{seconds * 1000:.1f}" for seconds in choice.token_s)
    return low if low == high else f"{low}–{high}"


def _cells(plan: FitPlan, choice: ClassChoice, shows_tokens: bool) -> tuple[str, ...]:
    token = (_token_ms(choice),) if shows_tokens else ()
    against: tuple[str, ...] = ()
    if plan.against is not None:
        low, high = (f"{ratio:.2f}" for ratio in price_ratio(choice.priced, plan.against))
        against = (low if low == high else f"{low}–{high}",)
    return (
        f"{choice.priced.cards}× {choice.gpu.name}{' spot' if choice.priced.spot else ''}",
        choice.priced.provider or "–",
        f"{choice.usd_hour:,.3f}",
        f"{choice.usd_hour / choice.priced.cards:,.3f}",
        *(_measure(choice, by) for by in (CostMeasure.MEMORY, CostMeasure.COMPUTE, CostMeasure.BANDWIDTH)),
        *token,
        *against,
        ", ".join((["too cheap"] if choice.too_cheap else []) + remarks(plan.needs, choice.gpu)),
    )


def _measure(choice: ClassChoice, by: CostMeasure) -> str:
    value = choice.per(by)
    return "–" if value is None else f"{value:.{3 if by is CostMeasure.BANDWIDTH else 5}f}"


def _best_lines(ranked: RankedClasses) -> str:
    best_texts = [
        f"{label} {best.gpu.name}" for by, label in _CHEAPEST_BY.items() if (best := ranked.best(by)) is not None
    ]
    return f"cheapest {', '.join(best_texts)}"


def _print_source(plan: FitPlan, timezone: str) -> None:
    from gpuwatch.app.market.current_offers import is_old
    from gpuwatch.bootstrap import real_now

    if plan.prices:
        as_of = "" if plan.as_of is None else f", as of {local(plan.as_of, timezone)}"
        old = " (outdated: fetch current ones with --poll)" if is_old(plan.as_of, real_now()) else ""
        note(f"{count_text(len(plan.prices), 'price')} of {plan.source}{as_of}{old}, commission included")
    else:
        note(f"not enough data: {plan.source} has no price; use --poll for current prices, or --price for your own")
    note(FIT_METHOD_TEXT)


def _print_sources(needs: TaskNeeds, as_json: bool) -> int:
    """The sources' table, with its inconsistencies."""
    from gpuwatch.app.plan.plan_fit import plan_fit_sources_json

    classes = source_classes(needs.task, needs.vram_gb)
    if as_json:
        json_out(plan_fit_sources_json(classes))
        return Exit.DONE
    b200, a100 = source_ratio("B200", "H100"), source_ratio("A100", "T4")
    table(_SEED_COLUMNS, [_seed_cells(price_class) for price_class in classes])
    click.echo()
    memory = {source_class.gpu: source_class.memory_gib for source_class in SOURCE_CLASSES}
    more = f"{memory['B200'] / memory['H100']:.2f} times the memory"
    click.echo(f"B200 : H100 = {b200[0]:.2f}–{b200[1]:.2f} times the price for {more}")
    click.echo(f"A100 : T4 = {a100[0]:.1f} times the price")
    note("the source gives 2.5 times for the first, or the price of 3 H100, and 5 to 7 times for the second")
    return Exit.DONE


def _seed_cells(source_class: SourceClass) -> tuple[str, ...]:
    task = "both" if source_class.task is GpuTask.ANY else source_class.task.value
    high = "" if source_class.high is None else f"–{source_class.high:.3f}"
    return (
        source_class.gpu,
        task,
        f"{source_class.memory_gib:g}",
        "–" if source_class.low is None else f"{source_class.low:.3f}{high}",
        source_class.source,
    )
