"""`gpuwatch plan fit`: the cheapest class of GPU that fits a task, by live prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.app.history.svg_charts import range_chart
from gpuwatch.app.market.current_offers import is_old
from gpuwatch.app.plan.plan_fit import FitPlan, fit_sentence, plan_fit, plan_fit_json
from gpuwatch.app.plan.plan_request import FIT_OPTIONS, request_of
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.cli.base import verbose_option, wants_method
from gpuwatch.cli.html import html_option, recorded_page, refuse_html_with, save_page
from gpuwatch.cli.options import (
    config_option,
    json_option,
)
from gpuwatch.cli.output import Recording, echo, json_out, local, note, record_output
from gpuwatch.cli.plan.plan import KeyCommand, key_options, note_model, put_watch, refuse_watch_with, watch_options
from gpuwatch.cli.terminal_tables import Column, left, right, table, text
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import per_gpu_hour, per_hour
from gpuwatch.domain.plan.fit import FIT_METHOD_TEXT, CostMeasure, GpuTask, price_ratio, remarks
from gpuwatch.domain.plan.job_comparison import TOO_CHEAP_TEXT
from gpuwatch.domain.plan.plan_schema import FitRequest

if TYPE_CHECKING:
    from gpuwatch.domain.plan.fit import ClassChoice, RankedClasses, TaskNeeds

_CHEAPEST_BY = {
    CostMeasure.HOUR: "per hour",
    CostMeasure.MEMORY: "per GB",
    CostMeasure.COMPUTE: "per TFLOP",
    CostMeasure.BANDWIDTH: "per TB/s",
}


@click.command(
    cls=KeyCommand,
    keys=FitRequest,
    options=FIT_OPTIONS,
    example="articles-fit.toml",
    examples=(
        "gpuwatch plan fit --task inference --vram 14 --latency interactive",
        "gpuwatch plan fit --size-of 70B --method qlora",
        "gpuwatch plan fit --price B200=9.50-12.00 --price 'H100 SXM=3.50-5.50' --against 'H100 SXM'",
    ),
)
@key_options(FitRequest, FIT_OPTIONS)
@watch_options("Print the [[watch]] for the best class at its price, instead of the classes.")
@html_option
@verbose_option
@json_option
@config_option
def fit(
    values: dict[str, Any], watch: str | None, write: bool, html: Path | None, as_json: bool, config: str | None
) -> int:
    """Find the cheapest class of GPU that fits a task: per hour, per GB, per TFLOP and per TB/s.

    Exit codes: 0 something fits, 1 no offer fits, 2 usage, 3 no price is known, or a provider did not answer.
    """
    request = request_of(FitRequest, values, FIT_OPTIONS)
    refuse_watch_with(watch, write=write, as_json=as_json)
    refuse_html_with(html, as_data=as_json or watch is not None)
    note_model(request)
    plan = plan_fit(request, lambda: load_settings(config))
    if watch is not None:
        _print_watch(watch, request, plan, config, write=write)
    elif as_json:
        json_out(plan_fit_json(plan))
    else:
        with record_output() as recording:
            _print_classes(plan, request.limit)
            _print_source(plan, "UTC" if request.price else load_settings(config).timezone)
        if html:
            save_page(html, _page(plan, request.limit, recording))
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
        echo(f"{fit_sentence(plan)}\n")
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
        right("price", drop=2),
        right("GPU price"),
        right("per GB", drop=4),
        right("per TFLOP", drop=3),
        right("per TB/s", drop=5),
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
        per_hour(choice.usd_hour, least=3, most=3),
        per_gpu_hour(choice.usd_hour / choice.priced.cards, least=3, most=3),
        *(_measure(choice, by) for by in (CostMeasure.MEMORY, CostMeasure.COMPUTE, CostMeasure.BANDWIDTH)),
        *token,
        *against,
        ", ".join((["too cheap"] if choice.too_cheap else []) + remarks(plan.needs, choice.gpu)),
    )


def _measure(choice: ClassChoice, by: CostMeasure) -> str:
    value = choice.per(by)
    return "–" if value is None else f"${value:.{3 if by is CostMeasure.BANDWIDTH else 5}f}"


def _best_lines(ranked: RankedClasses) -> str:
    best_texts = [
        f"{label} {best.gpu.name}" for by, label in _CHEAPEST_BY.items() if (best := ranked.best(by)) is not None
    ]
    return f"cheapest {', '.join(best_texts)}"


def _print_source(plan: FitPlan, timezone: str) -> None:
    if plan.prices:
        as_of = "" if plan.as_of is None else f", as of {local(plan.as_of, timezone)}"
        old = " (outdated: fetch current ones with --poll)" if is_old(plan.as_of, real_now()) else ""
        note(f"{count_text(len(plan.prices), 'price')} of {plan.source}{as_of}{old}, commission included")
    else:
        note(f"not enough data: {plan.source} has no price; use --poll for current prices, or --price for your own")
    if wants_method():
        note(FIT_METHOD_TEXT)
