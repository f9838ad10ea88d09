"""A rental without the order: the offers that a watch would rent now, their orders, and their prerequisites."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from decimal import Decimal

import msgspec

from gpuwatch.domain.launches.launch import Intent, new_launch
from gpuwatch.domain.market.money import Commission, dollars, usd
from gpuwatch.domain.watches.choice import best_first
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.match import matches
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.renting.launch_orders import build_order
from gpuwatch.engine.launches.renting.requoter import payable_match
from gpuwatch.engine.market.watch_search import PAGE_ROWS, queries_for
from gpuwatch.errors import GpuwatchError, KeyRejected, OrderRefused, ProviderError
from gpuwatch.ports import Launcher, Market, Order
from gpuwatch.ports.declarations import ProviderInfo
from gpuwatch.ports.prerequisites import OrderCheck, OrderValidation, Prerequisite, PrerequisiteName, PrerequisiteProbe

ORDERS_MOST = 6  # per watch and provider: the best of each instance type, region and rental type
_ID = "rehearsal222"  # as long as a launch id; no launch can have it, because the prefix is a word
_NO_LIMIT = Decimal(100_000)  # USD per GPU-hour


class RehearsedOffers(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch would rent now at one provider. `at_limit` False: only dearer offers fit, shown as substitutes."""

    matches: Sequence[Match]  # best first
    orders: Sequence[Order]
    at_limit: bool


def rehearsed_offers(
    watch: Watch, market: Market, commission: Commission, info: ProviderInfo, clock: Callable[[], datetime]
) -> RehearsedOffers:
    """Return the offers that fit now, and the orders that would be sent. Raises ProviderError."""
    no_limit = msgspec.structs.replace(watch, max_price_usd_gpu_hour=_NO_LIMIT, max_job_cost_usd=None)
    for at_limit in (True, False):
        asked = watch if at_limit else no_limit
        answers = [market.search(query) for query in queries_for(asked, commission, PAGE_ROWS)]
        offers = [offer for answer in answers for offer in answer.offers]
        found = matches(asked, offers, {info.name: commission}, clock())
        if found:
            payable = [one for match in found if (one := payable_match(match, asked, commission)) is not None]
            chosen = _one_of_each(best_first(asked, payable or found))
            orders = [_order(match, watch, info, clock()) for match in chosen]
            return RehearsedOffers(matches=chosen, orders=orders, at_limit=at_limit)
    return RehearsedOffers(matches=(), orders=(), at_limit=False)


def rehearsal_intent(watch: Watch, match: Match, info: ProviderInfo) -> Intent:
    """Return the intent of a rehearsed rental."""
    return Intent(watch=watch, match=match, launch_id=_ID, dry_run=False, label_lengths={info.name: info.label_length})


def prerequisites_of(
    launcher: Launcher, info: ProviderInfo, orders: Collection[Order], hour_microusd: int = 0
) -> list[Prerequisite]:
    """Return the known prerequisites of a provider: those of every account, and the provider's own.

    Orders of several watches for one offer are checked once, unless they differ in how one logs in.

    Args:
        hour_microusd: hourly price that the balance must cover, as before an order; 0: any positive balance is enough.
    """
    orders = {
        (order.offer_id, order.runtype, bool(order.onstart), "PUBLIC_KEY" in order.env): order for order in orders
    }.values()
    found = [credentials_of(launcher, info)]
    if found[0].met is not False:
        if any(prerequisite.name is PrerequisiteName.BALANCE for prerequisite in info.prerequisites):
            found.append(_balance(launcher, usd(hour_microusd)))
        if isinstance(launcher, PrerequisiteProbe):
            found += launcher.prerequisites(tuple(orders))
        if isinstance(launcher, OrderValidation):
            found += [launcher.validate(order) for order in orders]
        lacks_key = any(one.name is PrerequisiteName.KEY_PAIR and one.met is False for one in found)
        if isinstance(launcher, OrderCheck) and not lacks_key:  # it would repeat that
            found += _unorderable(launcher, orders)
    docs = {spec.name: spec.docs for spec in info.prerequisites}
    return [msgspec.structs.replace(one, area=info.name, docs=docs.get(one.name)) for one in found]


def _unorderable(launcher: OrderCheck, orders: Collection[Order]) -> Iterator[Prerequisite]:
    """Yield why a watch's orders cannot be sent there, each reason once."""
    reasons: dict[str, list[str]] = {}
    for order in orders:
        try:
            launcher.check_order(order)
        except OrderRefused as error:
            reasons.setdefault(str(error), []).append(order.offer_id)
    mend = "take it out of the watch, or name other `providers`"
    for text, ids in reasons.items():
        yield Prerequisite(name=PrerequisiteName.ORDER, met=False, text=text, mend=mend, offer_ids=tuple(ids))


def credentials_of(launcher: Launcher, info: ProviderInfo) -> Prerequisite:
    """Return whether the credentials can list the account's instances. Raises nothing."""
    name = PrerequisiteName.CREDENTIALS
    try:
        launcher.list_instances()
    except KeyRejected as error:
        right = info.key_rights.get("list")
        mend = (
            f"renew the key, or grant it the permission {right}"
            if right
            else "renew the key, or grant it more permissions"
        )
        return Prerequisite(name=name, met=False, text=str(error), mend=mend)
    except GpuwatchError as error:
        return Prerequisite(name=name, met=None, text=str(error))
    return Prerequisite(name=name, met=True, text="the key may list the account's instances")


def _balance(launcher: Launcher, hour_usd: Decimal) -> Prerequisite:
    name = PrerequisiteName.BALANCE
    try:
        credit_usd = launcher.credit_usd()
    except ProviderError as error:
        return Prerequisite(name=name, met=None, text=str(error))
    if credit_usd is None:
        return Prerequisite(name=name, met=None, text="the provider does not report the balance")
    text = f"the balance is {dollars(credit_usd)}"
    if credit_usd <= 0:
        return Prerequisite(name=name, met=False, text=text, mend="add credit")
    if credit_usd < hour_usd:
        less = f"{text}, less than one hour at {dollars(hour_usd)}"
        return Prerequisite(name=name, met=False, text=less, mend="add credit")
    return Prerequisite(name=name, met=True, text=text)


def _one_of_each(found: Sequence[Match]) -> list[Match]:
    """Return the best of each machine type, place and rental type."""
    kept: dict[tuple[object, ...], Match] = {}
    for match in found:
        offer = match.offer
        machine = offer.terms.instance_type or offer.gpu
        kept.setdefault((machine, offer.gpu_count, offer.region, offer.spot), match)
    return list(kept.values())[:ORDERS_MOST]


def _order(match: Match, watch: Watch, info: ProviderInfo, now: datetime) -> Order:
    launch = new_launch(rehearsal_intent(watch, match, info), 1, now)
    moves_ends = info.self_destruct is not None and info.self_destruct.is_movable
    return build_order(launch, match, watch, moves_ends=moves_ends)
