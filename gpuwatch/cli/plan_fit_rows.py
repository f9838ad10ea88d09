"""What `gpuwatch plan fit` prints: classes of GPU with their measures, and the sources' own table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.tables import Column, left, right, text

if TYPE_CHECKING:
    from gpuwatch.app.plan_fit import CurrentPrices
    from gpuwatch.domain.planning.fit import (
        ClassChoice,
        CostMeasure,
        PricedClass,
        SourceClass,
        TaskNeeds,
    )
    from gpuwatch.domain.planning.fit import RankedClasses as Fitting


def print_table(needs: TaskNeeds, chosen: Fitting, found: CurrentPrices, other: PricedClass | None, limit: int) -> None:
    """Classes, best first; what is cheapest by each measure; what is left out and why."""
    from gpuwatch.app.plan_fit import METHOD
    from gpuwatch.cli.output import note
    from gpuwatch.cli.tables import table

    if chosen.choices:
        rows = [_row(needs, one, other) for one in chosen.choices[:limit]]
        table(_columns(needs, other), rows, title=_title(needs, found))
        if len(chosen.choices) > limit:
            click.echo(f"… and {len(chosen.choices) - limit} more (--limit)")
        click.echo()
        click.echo(_bests(chosen))
    elif found.offers:
        click.echo("Nothing that is on offer fits.")
    for why, gpus in chosen.left_out.items():
        click.echo(f"left out, {why}: {_few(gpus)}")
    _print_source(found, note)
    note(METHOD)


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


def _print_source(found: CurrentPrices, note: Any) -> None:
    from gpuwatch.bootstrap import real_now

    if not found.offers:
        note(f"not enough data: {found.source}: no price; --poll asks the providers, --price takes your own")
        return
    as_of = "" if found.as_of is None else f", as of {found.as_of:%Y-%m-%d %H:%M} UTC"
    old = " (old: --poll asks the providers)" if found.is_old(real_now()) else ""
    note(f"{len(found.offers)} prices of {found.source}{as_of}{old}, commission included")


def print_seed(needs: TaskNeeds, as_json: bool) -> int:
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
