"""`gpuwatch use --ssh HOST`: how busy machines are that gpuwatch did not rent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.cli import Exit
from gpuwatch.cli.base import refuse_given
from gpuwatch.cli.output import echo, json_out, note
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import HOURS_A_MONTH, dollars, per_gpu_hour, per_hour
from gpuwatch.domain.plan.buy import UtilisationVerdict
from gpuwatch.domain.plan.machines.machine_use import LEAST_SAMPLES
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from gpuwatch.app.plan.machines.machine_audit import MachineAudit
    from gpuwatch.domain.plan.machines.machine_use import GpuUse, SmallerCard, Thresholds

_COLUMNS = (
    left("machine"),
    left("GPU"),
    right("GPU price", drop=3),
    right("use"),
    right("most memory", drop=2),
    right("idle"),
    text("smaller card", drop=1),
    text("", drop=4),
)
_MIB_A_GIB = 1024


class MachineOptions(msgspec.Struct, frozen=True):
    """The options that read machines."""

    hosts: tuple[str, ...]
    listed: bool
    key: Path | None
    for_s: float | None
    every_s: float | None

    @property
    def are_meant(self) -> bool:
        """Whether machines are read."""
        return bool(self.hosts) or self.listed


def use_of_machines(
    options: MachineOptions, price: Decimal | None, thresholds: Thresholds, config: str | None, *, as_json: bool
) -> int:
    """Read the machines, print their use, and return the exit code."""
    from gpuwatch.app.plan.machines.machine_audit import MachineAuditRequest, audit_machines, machine_audit_json
    from gpuwatch.bootstrap.settings_loading import load_settings

    refuse_given("cannot be combined with --ssh or --machines", "uses", "own", "since")
    if options.hosts and options.listed:
        raise UsageError("use either --ssh or --machines")
    if options.for_s is None:
        refuse_given("requires --for", "every_s")
    request = MachineAuditRequest(
        hosts=options.hosts,
        ssh_key=None if options.key is None else str(options.key.absolute()),
        usd_gpu_hour=price,
        for_s=options.for_s or 0.0,
        every_s=options.every_s or 0.0,
        thresholds=thresholds,
    )
    audit = audit_machines(load_settings(config), request, time.monotonic, time.sleep)
    if as_json:
        json_out(machine_audit_json(audit))
    else:
        _print(audit, thresholds)
    return Exit.CANNOT_TELL if audit.failed else Exit.DONE


def _print(audit: MachineAudit, thresholds: Thresholds) -> None:
    if audit.uses:
        table(_COLUMNS, [_cells(use, thresholds) for use in audit.uses], title=_title(audit))
    for host, count in audit.missed.items():
        why = f": {audit.failed[host]}" if host in audit.failed else ""
        many = "cannot be read" if audit.rounds == 1 else f"{count} of {audit.rounds} readings failed"
        echo(f"{host}: {many}{', the newest' if why and audit.rounds > 1 else ''}{why}")
    if any(use.priced for use in audit.uses):
        month = audit.idle_usd_hour * HOURS_A_MONTH
        note(f"idle time costs {per_hour(audit.idle_usd_hour)}: {dollars(month)} a month at this use")
    if audit.note and any(use.usd_gpu_hour is None for use in audit.uses):
        note(f"{audit.note}; state yours with --price")
    if audit.uses and audit.rounds < LEAST_SAMPLES:
        note(f"{count_text(audit.rounds, 'reading')}: a peak may have been missed; read longer with --for 10m")
    if any(use.smaller for use in audit.uses):
        note(
            f"smaller card: holds the most memory with 10 % left, and is at most {thresholds.good:g} % busy if its "
            "kernels take longer by the data sheets' 16-bit rate or bandwidth, whichever is worse; try it first"
        )


def _title(audit: MachineAudit) -> str:
    span_s = (audit.until - audit.since).total_seconds()
    length = f"{span_s:.0f} s" if span_s < 120 else f"{span_s / 60:.0f} min"
    span = f" over {length}" if audit.rounds > 1 else ""
    return f"{count_text(audit.rounds, 'reading')}{span}"


def _cells(use: GpuUse, thresholds: Thresholds) -> tuple[str, ...]:
    price = "–" if use.usd_gpu_hour is None else per_gpu_hour(use.usd_gpu_hour, least=2, most=3)
    total = "" if use.total_mib is None else f" of {use.total_mib / _MIB_A_GIB:.0f}"
    return (
        use.host,
        f"{use.index}: {use.gpu}",
        price if use.is_own_price or use.usd_gpu_hour is None else f"{price} (market)",
        "–" if use.percent is None else f"{use.percent:.0f} %",
        "–" if use.peak_mib is None else f"{use.peak_mib / _MIB_A_GIB:.1f}{total} GiB",
        "–" if use.priced is None else per_hour(use.priced.idle_usd_hour, most=2),
        _smaller_text(use.smaller[0]) if use.smaller else "–",
        _advice(use, thresholds),
    )


def _smaller_text(card: SmallerCard) -> str:
    price = "" if card.usd_gpu_hour is None else f", {per_gpu_hour(card.usd_gpu_hour, least=2, most=3)}"
    return f"{card.gpu.name} at {card.percent:.0f} %{price}"


def _advice(use: GpuUse, thresholds: Thresholds) -> str:
    if use.verdict is not None:
        return advice_text(use.verdict, thresholds.low, thresholds.good)
    if use.is_split:
        return "its driver states no use, as of a GPU that MIG splits"
    return "its driver states nothing of it: is it lost?" if use.total_mib is None else "not measured"


def advice_text(verdict: UtilisationVerdict, low: float, good: float) -> str:
    """What a utilisation means, in one clause."""
    return {
        UtilisationVerdict.BOTTLENECK: f"under {low:g} %: find what the GPU waits for before you rent more",
        UtilisationVerdict.WASTEFUL: f"under {good:g} %: use a larger batch, or a smaller GPU",
        UtilisationVerdict.GOOD: "well used",
    }[verdict]
