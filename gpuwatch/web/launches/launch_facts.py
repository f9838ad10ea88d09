"""What is known about a rented machine: what it is, its price, its checks, and when it ends by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuwatch.app.reader_text import percent, span
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.reclaim import BAD_MACHINE, reclaim_of
from gpuwatch.domain.market.money import MICRO, dollars, hourly_text, rate_text, unit_hourly_text, usd
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.launch_spec import PriceIncreasePolicy, VerificationMode
from gpuwatch.language import translate as _
from gpuwatch.web.components import code
from gpuwatch.web.launches.machine_text import machine_name, machine_place

if TYPE_CHECKING:
    from markupsafe import Markup

    from gpuwatch.app.launches.launches import LaunchDetails
    from gpuwatch.domain.watches.watch import Watch


def launch_facts(details: LaunchDetails) -> list[tuple[str, str | Markup]]:
    """Return label and text of each fact."""
    launch, spec = details.launch, None if details.watch is None else details.watch.launch
    facts: list[tuple[str, str | Markup]] = [(_("Machine"), _machine(launch)), (_("Price"), _price(launch))]
    if launch.running_at is not None and spec is not None and not launch.ended_because(*BAD_MACHINE):
        facts.append((_("Checked"), _checked(spec.verify, launch.gpu_count)))
    ends = list(_ends(details.watch, launch))
    if ends:
        facts.append((_("Ends by itself"), "; ".join(ends)))
    if (bad := reclaim_of(launch)) is not None:
        reclaimed = _("{amount} billed in {time}, until its end was proven")
        amount = dollars(usd(bad.microusd))
        facts.append((_("To reclaim"), reclaimed.format(amount=amount, time=span(bad.lasted.total_seconds()))))
    if launch.started_by is not None:
        facts.append((_("Started by"), clean(launch.started_by)))
    if launch.instance_id is not None:
        facts.append((_("Instance"), code(clean(launch.instance_id))))
    facts.append((_("Label"), code(clean(launch.label))))
    return facts


def _machine(launch: Launch) -> str:
    promised = launch.promised
    memory = "" if promised.gpu_memory_gib is None else f" {promised.gpu_memory_gib:.0f} GB"
    parts = [f"{machine_name(launch)}{memory}", machine_place(launch)]
    if launch.spot:
        parts.append(_("spot"))
    if launch.machine_id:
        parts.append(_("machine {number}").format(number=clean(launch.machine_id)))
    if promised.reliability is not None:
        parts.append(_("{percent} reliable").format(percent=f"{100 * promised.reliability:.1f} %"))
    return "; ".join(parts)


def _price(launch: Launch) -> str:
    whole, listed = launch.price_microusd_hour, launch.listed_microusd_hour
    fields = {"price": hourly_text(whole), "listed": rate_text(listed), "fee": rate_text(whole - listed)}
    disk = launch.promised.disk_gb
    if disk is None or not disk:
        text = _("{price}: {listed} listed, and {fee} commission") if whole > listed else "{price}"
    else:
        fields["disk"] = f"{disk:.0f}"
        with_fee = _("{price}: {listed} listed with {disk} GB disk, and {fee} commission")
        text = with_fee if whole > listed else _("{price} with {disk} GB disk")
    return text.format(**fields)


def _checked(mode: VerificationMode, gpu_count: int) -> str:
    if not gpu_count and mode is not VerificationMode.NONE:
        return {
            VerificationMode.LISTED: _("memory and disk are as offered, by the provider's list"),
            VerificationMode.SSH: _("memory and disk are as offered; its SSH port answers"),
        }[mode]
    return {
        VerificationMode.NONE: _("not checked, as its watch wants"),
        VerificationMode.LISTED: _("GPU, memory, disk and CUDA are as offered, by the provider's list"),
        VerificationMode.SSH: _("GPU, memory, disk and CUDA are as offered; its SSH port answers"),
    }[mode]


def _ends(watch: Watch | None, launch: Launch) -> Iterator[str]:
    if launch.max_runtime_s is not None:
        yield _("after {time}").format(time=span(launch.max_runtime_s))
    spec = None if watch is None else watch.launch
    if watch is None or spec is None:
        return
    if spec.idle_below is not None and spec.idle_for_s is not None:
        text = _("when the GPU is under {percent} for {time}")
        yield text.format(percent=percent(spec.idle_below / 100), time=span(spec.idle_for_s))
    if spec.on_price_increase is PriceIncreasePolicy.STOP:
        yield _("when the host raises the price")
    elif spec.on_price_increase is PriceIncreasePolicy.ACCEPT_UNDER and not watch.unlimited:
        limit = unit_hourly_text(round(watch.max_price_usd_gpu_hour * MICRO), watch.gpu_count_max)
        yield _("when the host raises the price above {limit}").format(limit=limit)
    if spec.stop_outside:
        yield _("outside the hours of its watch")
