"""Rehearse a watch: all steps of renting except the order, at each provider where it rents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from gpuwatch import providers
from gpuwatch.app.watches.current_limits import current_limits
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.bootstrap import build_adapters, http_client, missing_extra_hint, open_store_read_only, real_now
from gpuwatch.bootstrap.provider_access import has_credentials, providers_polled_for
from gpuwatch.domain.launches.launch import disk_microusd_hour
from gpuwatch.domain.market.json_view import JsonView
from gpuwatch.domain.market.money import MICRO, per_unit_hour
from gpuwatch.domain.market.offer import marks
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.launches.renting.rehearsal import (
    RehearsedOffers,
    prerequisites_of,
    rehearsal_intent,
    rehearsed_offers,
)
from gpuwatch.errors import ProviderError, StoreError, StoreMissing, UsageError
from gpuwatch.ports.findings import Finding
from gpuwatch.storage.launches.launch_admission import refusal_of_rehearsal

if TYPE_CHECKING:
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports.declarations import Adapter, ProviderInfo
    from gpuwatch.settings import Settings

_NO_OFFER = "no matching offer now; offer-specific checks were skipped"


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `ready` None: something is unknown, but nothing is known to be missing."""

    watch: str
    dry_run: bool
    lines: Sequence[Finding]

    @property
    def ready(self) -> bool | None:
        """Whether renting would succeed, as far as can be known without an order."""
        states = {line.state for line in self.lines}
        return False if "fault" in states else None if "unknown" in states else True


def rehearse(settings: Settings, name: str) -> Rehearsal:
    """Rehearse a watch. Rents, changes and stores nothing.

    Raises:
        UsageError: there is no such watch, or it does not rent.
    """
    watch = watch_named(settings, name)
    if watch.action is Action.ALERT:
        raise UsageError(f'watch {name!r} does not rent: action = "alert"; rehearse one with "launch" or "ask"')
    if watch.action is Action.COMMAND:
        raise UsageError(f"watch {name!r} rents with a command; see what would run: gpuwatch check {name}")
    limits = current_limits(settings, [watch], keep=False)
    lines = list(_settings(settings, watch))
    lines += _providers(settings, limits.watches[0])
    return Rehearsal(watch=name, dry_run=settings.dry_run, lines=lines)


class RehearsalLineView(JsonView, frozen=True, kw_only=True):
    """One thing that a launch needs."""

    provider: Annotated[str | None, Meta(description="Null: of gpuwatch itself.")]
    name: str
    state: Annotated[str, Meta(description="`met`, `missing`, `note` or `unknown`.")]
    text: str
    mend: Annotated[str, Meta(description="What to do; empty: nothing.")]
    place: Annotated[str, Meta(description="Region, zone or family; empty: everywhere.")]
    docs: str | None


class RehearsalView(JsonView, frozen=True, kw_only=True):
    """The result of `gpuwatch watches rehearse`."""

    watch: str
    ready: Annotated[bool | None, Meta(description="Null: something is unknown, but nothing is known to be missing.")]
    dry_run: bool
    missing: list[str]
    lines: list[RehearsalLineView]


def rehearsal_view(rehearsal: Rehearsal) -> RehearsalView:
    """A rehearsal as other programs see it."""
    return RehearsalView.of(
        rehearsal,
        missing=[line.text for line in rehearsal.lines if line.state == "fault"],
        lines=[
            RehearsalLineView.of(
                line,
                provider=line.area or None,
                state={"ok": "met", "fault": "missing"}.get(line.state, line.state),
                mend=line.mend or "",
            )
            for line in rehearsal.lines
        ],
    )


def _settings(settings: Settings, watch: Watch) -> Iterator[Finding]:
    line = partial(Finding, area="", name="settings")
    if settings.dry_run:
        yield line(state="note", text="dry_run = true: gpuwatch rents nothing", mend="set dry_run = false to rent")
    if settings.budget.max_usd_hour is None:
        yield line(state="fault", text="no spending limit is set", mend="add [budget] max_usd_hour")
    if watch.launch is None or watch.launch.max_runtime_s is None:
        yield line(
            state="fault", text="its instances have no maximum runtime", mend='add [watch.launch] max_runtime = "24h"'
        )


def _providers(settings: Settings, watch: Watch) -> Iterator[Finding]:
    able = []
    for name in providers_polled_for(watch, settings.providers):
        fault = _renting_fault(settings, name)
        if fault is None:
            able.append(name)
        else:
            has_providers = watch.providers is not None
            yield Finding(area=name, name="credentials", state="fault" if has_providers else "note", text=fault)
    if not able:
        text = "this watch has no provider where gpuwatch can rent"
        yield Finding(area="", name="settings", state="fault", text=text, mend="set a provider's key")
        return
    with http_client(settings) as http:
        has_offer = False
        for adapter in build_adapters(settings, http, able, is_patient=False).values():
            lines = list(_provider(settings, watch, adapter))
            has_offer |= any(line.name == "offers" and line.text != _NO_OFFER for line in lines)
            yield from lines
    if not has_offer:
        text = "nowhere is an offer that fits: no order and no limit was rehearsed"
        yield Finding(area="", name="offers", state="unknown", text=text, mend="rehearse again when one is")


def _renting_fault(settings: Settings, name: str) -> str | None:
    info = providers.info(name)
    if not info.launches:
        return f"gpuwatch cannot rent at {name}"
    if not has_credentials(settings.providers[name]):
        return f"no key: set {info.key_names[0]}" if info.key_names else "no key"
    return missing_extra_hint(name)


def _provider(settings: Settings, watch: Watch, adapter: Adapter) -> Iterator[Finding]:
    name = adapter.name
    if adapter.launcher is None:
        yield Finding(area=name, name="credentials", state="fault", text="its options allow only prices")
        return
    line = partial(Finding, area=name, name="offers")
    offers = RehearsedOffers(matches=(), orders=(), at_limit=False)
    try:
        commission = settings.providers[name].commission
        offers = rehearsed_offers(watch, adapter.market, commission, adapter.info, real_now)
    except ProviderError as error:
        yield line(state="unknown", text=str(error))
    else:
        yield _offers_line(name, watch, offers)
        if offers.matches and offers.at_limit:
            yield _admission(settings, watch, offers.matches[0], adapter)
    yield from _self_destruct_lines(watch, adapter.info, offers)
    hour_microusd = offers.matches[0].price.price_microusd_hour if offers.at_limit else 0
    yield from prerequisites_of(adapter.launcher, adapter.info, offers.orders, hour_microusd)


def _offers_line(name: str, watch: Watch, offers: RehearsedOffers) -> Finding:
    line = partial(Finding, area=name, name="offers")
    if not offers.matches:
        return line(state="note", text=_NO_OFFER)
    best = offers.matches[0]
    price = f"{best.offer.offer_id} at {per_unit_hour(best.price_microusd_gpu_hour / MICRO, best.offer.gpu_count)}"
    description = ", ".join((price, *marks(best.offer)))
    if offers.at_limit:
        return line(state="ok", text=f"would be ordered first: {description}")
    limit = per_unit_hour(watch.max_price_usd_gpu_hour, watch.gpu_count_max, most=6)
    return line(
        state="note", text=f"no offer at or under {limit} now; rehearsed with the cheapest match, {description}"
    )


def _self_destruct_lines(watch: Watch, info: ProviderInfo, offers: RehearsedOffers) -> Iterator[Finding]:
    """What ends its instance without gpuwatch, and what stays billed."""
    is_movable = info.self_destruct is not None and info.self_destruct.is_movable
    if watch.launch is None or not watch.launch.ends_itself(is_movable):
        return
    line = partial(Finding, area=info.name, name="self-destruct")
    if info.self_destruct is None:
        text = f"at {info.title}, an instance cannot end itself reliably: the order would be refused"
        yield line(state="fault", text=text, mend="set self_destruct = false, or remove it from `providers`")
    elif info.self_destruct.needs_onstart and not watch.launch.onstart:
        text = f"self_destruct at {info.title} requires a start script, and there is none"
        yield line(state="fault", text=text, mend='set launch.onstart; if there is nothing to run: onstart = "true"')
    elif offers.matches:
        best = offers.matches[0]
        disk = disk_microusd_hour(best, watch.disk_gb)
        yield line(state="note", text=info.self_destruct.text(disk, best.price.price_microusd_hour))


def _admission(settings: Settings, watch: Watch, match: Match, adapter: Adapter) -> Finding:
    """The rules of the reservation: pauses, limits, budgets."""
    line = partial(Finding, area=adapter.name, name="limits")
    intent = rehearsal_intent(watch, match, adapter.info)
    try:
        with open_store_read_only(settings) as store, store.read() as connection:
            refused = refusal_of_rehearsal(connection, intent, settings.budget, real_now())
    except StoreMissing:
        return line(state="note", text="there is no database yet: no pauses, launches or ticked items")
    except StoreError as error:
        return line(state="unknown", text=str(error), mend="run gpuwatch store upgrade, or gpuwatch run")
    if refused is None:
        return line(state="ok", text="no pause, limit or budget blocks it")
    return line(state="fault", text=refused.text)
