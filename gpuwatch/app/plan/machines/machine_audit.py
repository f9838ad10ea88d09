"""The audit of the owner's own machines: reads them once or for a while, and prices their idle hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuwatch.app.plan.plan_fit import stored_gpu_prices
from gpuwatch.app.plan.plan_use import price_json
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.job_building import own_machines
from gpuwatch.domain.market.json_view import number, rfc3339
from gpuwatch.domain.plan.buy import UTILISATION_METHOD_TEXT
from gpuwatch.domain.plan.machines.machine_use import GpuUse, MachineReading, SmallerCard, Thresholds, gpu_uses
from gpuwatch.domain.plan.machines.own_hosts import check_own_host
from gpuwatch.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

MOST_SMALLER: Final = 3  # that JSON and the terminal list


class MachineAuditRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, and how to judge it.

    Attributes:
        hosts: empty: the machines of the settings.
        ssh_key: None: that of the settings, else the user's own keys and agent.
        usd_gpu_hour: the price of every GPU; None: as the settings state it, else the market's.
        for_s: how long to read; 0: once.
        every_s: the time between two readings.
    """

    hosts: tuple[str, ...]
    ssh_key: str | None
    usd_gpu_hour: Decimal | None
    for_s: float
    every_s: float
    thresholds: Thresholds


class MachineAudit(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        rounds: readings of all machines.
        failed: host → why its newest reading failed.
        missed: host → readings of it that failed.
        note: why the market's prices are missing; None: they are known.
    """

    since: datetime
    until: datetime
    rounds: int
    hosts: tuple[str, ...]
    uses: tuple[GpuUse, ...]
    failed: dict[str, str]
    missed: dict[str, int]
    note: str | None

    @property
    def idle_usd_hour(self) -> Decimal:
        """What idle time costs per hour, of the GPUs whose price and use are known."""
        return sum((use.priced.idle_usd_hour for use in self.uses if use.priced is not None), Decimal(0))


def audit_machines(
    settings: Settings,
    request: MachineAuditRequest,
    monotonic: Callable[[], float],
    wait: Callable[[float], object],
) -> MachineAudit:
    """Read the machines and judge their use.

    Args:
        monotonic: seconds.
        wait: waits for so many seconds. If it raises KeyboardInterrupt, what was read until then is judged.

    Raises:
        UsageError: no machine is named, or a name is none.
    """
    configured = {machine.host: machine.usd_gpu_hour for machine in settings.own_machines.machines}
    hosts = tuple(dict.fromkeys(map(_host, request.hosts))) or tuple(configured)
    if not hosts:
        raise UsageError("no machine is named: use --ssh HOST, or list machines in [own_machines] of the settings")
    machines = own_machines(settings, hosts, request.ssh_key or settings.own_machines.ssh_key)
    since, ends_at = real_now(), monotonic() + request.for_s
    readings: list[tuple[MachineReading, ...]] = []
    try:
        readings.append(machines.read(real_now))
        while (left_s := ends_at - monotonic()) > 0:
            wait(min(left_s, request.every_s))
            readings.append(machines.read(real_now))
    except KeyboardInterrupt:
        if not readings:
            raise
    stated = {host: request.usd_gpu_hour or configured.get(host) for host in hosts}
    market, note = _market(settings)
    uses = gpu_uses(
        [reading for found in readings for reading in found],
        {host: price for host, price in stated.items() if price is not None},
        market,
        request.thresholds,
    )
    return MachineAudit(
        since=since,
        until=real_now(),
        rounds=len(readings),
        hosts=hosts,
        uses=tuple(uses),
        failed={reading.host: reading.error for reading in readings[-1] if reading.error is not None},
        missed=Counter(reading.host for found in readings for reading in found if reading.error is not None),
        note=note,
    )


def _host(text: str) -> str:
    try:
        return check_own_host(text)
    except ValueError as error:
        raise UsageError(f"--ssh: {error}") from None


def _market(settings: Settings) -> tuple[dict[str, Decimal], str | None]:
    """The market's prices, if a store has them: the use of a machine can be read without one."""
    try:
        prices = stored_gpu_prices(settings)
    except StoreError as error:
        return {}, f"market prices are unknown: {error}"
    return prices, None if prices else "market prices are unknown: the store has no recent offers"


# --- JSON -------------------------------------------------------------------------------------------------------------


def machine_audit_json(audit: MachineAudit) -> dict[str, Any]:
    """JSON of `gpuwatch use --ssh`."""
    return {
        "method": f"{UTILISATION_METHOD_TEXT}, mean of the readings of nvidia-smi, amd-smi or rocm-smi",
        "samples": audit.rounds,
        "since": rfc3339(audit.since),
        "until": rfc3339(audit.until),
        "idle_usd_hour": number(audit.idle_usd_hour),
        "machines": [
            {
                "host": host,
                "error": audit.failed.get(host),
                "failed_samples": audit.missed.get(host, 0),
                "gpus": [_use_json(use) for use in audit.uses if use.host == host],
            }
            for host in audit.hosts
        ],
        "note": audit.note,
    }


def _use_json(use: GpuUse) -> dict[str, Any]:
    return {
        "index": use.index,
        "gpu": use.gpu,
        "samples": use.samples,
        "peak_percent": use.peak_percent,
        "peak_memory_mib": use.peak_mib,
        "memory_mib": use.total_mib,
        "price_usd_gpu_hour": number(use.usd_gpu_hour),
        "price_source": None if use.usd_gpu_hour is None else "own" if use.is_own_price else "market",
        **price_json(use.priced),
        "use_percent": use.percent,
        "verdict": use.verdict,
        "smaller": [_smaller_json(card) for card in use.smaller[:MOST_SMALLER]],
    }


def _smaller_json(card: SmallerCard) -> dict[str, Any]:
    return {
        "gpu": card.gpu.name,
        "memory_gib": card.gpu.memory_gib,
        "use_percent": card.percent,
        "price_usd_gpu_hour": number(card.usd_gpu_hour),
    }
