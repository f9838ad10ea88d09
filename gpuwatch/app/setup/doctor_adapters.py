"""The findings of `gpuwatch doctor` about alert channels, and about the prerequisites of renting at a provider."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpuwatch import notifiers
from gpuwatch.app.alerts.alerts import notify_sections
from gpuwatch.app.setup.doctor_account import renting_watches
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.provider_access import has_credentials, has_extra
from gpuwatch.engine.launches.renting.rehearsal import prerequisites_of, rehearsed_offers
from gpuwatch.engine.setup.parallel import run_in_parallel
from gpuwatch.errors import ProviderError
from gpuwatch.installation import install_hint
from gpuwatch.notifiers.toolkit import template_errors
from gpuwatch.ports.findings import Finding

if TYPE_CHECKING:
    from gpuwatch.ports import Order
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings

log = logging.getLogger(__name__)


WITHIN_S = 10.0  # for all channels together


def channel_findings(settings: Settings, http: HttpClient, within_s: float = WITHIN_S) -> Iterator[Finding]:
    """One or more findings for each configured channel, in their order. Sends no alert.

    All are checked in parallel, each for a limited time.
    """
    if not settings.channels:
        mend = f"add one of {notify_sections()}"
        yield Finding(area="alerts", state="note", text="no channel is configured", mend=mend)
    findings: dict[str, tuple[Finding, ...]] = {}
    for outcome in run_in_parallel(settings.channels, partial(_check, settings, http), within_s):
        fault = Finding(
            area=_area(outcome.name),
            state="fault",
            text=outcome.error or "",
            mend="check its address and the network; send a test message with gpuwatch alerts test",
        )
        findings[outcome.name] = outcome.result or (fault,)
    for name, channel in settings.channels.items():
        yield from findings[name]
        templates = channel.options.get("templates")
        for kind, why in template_errors(templates if isinstance(templates, dict) else None):
            text = f"the template of {kind} is not used: {why}"
            yield Finding(area=_area(name), state="note", text=text, mend=f"fix [notify.{name}.templates] {kind}")


def _check(settings: Settings, http: HttpClient, name: str) -> tuple[Finding, ...]:
    info = notifiers.info(name)
    if info.extra is not None and not has_extra(info.extra):
        text = f"its extra {info.extra} is not installed; it cannot deliver alerts"
        return (Finding(area=_area(name), state="fault", text=text, mend=install_hint(info.extra)),)
    if info.doctor is None:
        return (
            Finding(area=_area(name), state="ok", text="configured; send a test message with gpuwatch alerts test"),
        )
    return tuple(own_checks(_area(name), partial(info.doctor, settings.channels[name].revealed(), http)))


def _area(channel: str) -> str:
    return f"alerts by {channel}"


def own_checks(area: str, checks: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The checks that a provider or channel declares. If a plugin raises anything, that is a finding, too."""
    try:
        yield from checks()
    except Exception as error:
        log.debug("the checks of %s failed", area, exc_info=True)
        yield Finding(area=area, state="fault", text=f"its self-check failed ({type(error).__name__})")


def prerequisite_findings(settings: Settings, adapter: Adapter) -> Iterator[Finding]:
    """One finding for each prerequisite of the watches that rent. A provider where gpuwatch cannot rent has none."""
    launcher, info = adapter.launcher, adapter.info
    if launcher is None or not has_credentials(settings.providers[adapter.name]):
        return
    orders: list[Order] = []
    for watch in renting_watches(settings, adapter.name):
        try:
            commission = settings.providers[adapter.name].commission
            orders += rehearsed_offers(watch, adapter.market, commission, info, real_now).orders
        except ProviderError as error:
            text = f"cannot fetch offers for {watch.name!r}: {error}"
            yield Finding(area=adapter.name, state="note", text=text)
    if not orders:
        text = "no offer for a watch that rents: offer-specific prerequisites were not checked"
        yield Finding(area=adapter.name, state="note", text=text)
    yield from prerequisites_of(launcher, info, orders)
