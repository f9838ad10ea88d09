"""Compares an answer with the offers seen before, to find what a poll changes in the history. No SQL here.

Ten thousand unchanged offers may cost only a few milliseconds, so they are recognised by the quote as received; only
differing offers are priced.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuwatch.domain.market.money import MICRO, REFERENCE_DISK_GB, Commission, disk_microusd_hour, price_of
from gpuwatch.domain.market.offer import Offer, storable_text
from gpuwatch.ports import Answer, Completeness
from gpuwatch.storage.history.recording.open_prices import Key, OpenPrice, OpenPrices, ProviderPrices
from gpuwatch.storage.setup.machine_facts import size_of

# The machine's price is computed from quotes with different disks, each rounded separately; in a hunt's answer a
# difference up to this counts as the same price.
HUNT_TOLERANCE_MICROUSD = 2
_MAX_MICROUSD = 10**15
_NO_COMMISSION = Commission()


class RecordedPoll(NamedTuple):
    """One answered search, for the history."""

    provider: str
    lane: str
    gpu: str  # "" = all models
    spot: int
    at_s: int
    covers: bool  # an offer that it does not show is gone …
    complete_to_microusd: int | None  # … if it was listed at or under this; None: any


class PriceChange(NamedTuple):
    """An offer that is new, or whose price differs from before (`was`)."""

    offer: Offer
    machine_id: str
    machine_microusd: int
    disk_microusd: int | None
    previous: OpenPrice | None


class AnswerChanges(NamedTuple):
    """The changes to write after one poll."""

    new_prices: list[PriceChange]  # new, or at another price
    delisted: list[OpenPrice]
    facts: list[tuple[OpenPrice, Offer]]  # the facts of the machine changed, its price did not


def covers(answer: Answer, lane: str) -> bool:
    """Whether an offer that this answer does not show counts as gone."""
    if lane != "sweep":
        return False
    if answer.completeness is Completeness.TRUNCATED:
        return answer.complete_to_usd_hour is not None
    return answer.completeness is Completeness.COMPLETE


def find_changes(answer: Answer, poll: RecordedPoll, prices: OpenPrices) -> AnswerChanges:
    """Find the changes, and mark the offers that were seen."""
    prices.polls += 1
    mark = prices.polls
    provider_prices = prices.prices_of(poll.provider, poll.spot)
    changed_offers, facts = _changed_offers(answer, provider_prices, mark, saves_quotes=poll.lane == "sweep")
    price_changes = _PriceComparison(prices, poll, mark, facts).compare(changed_offers) if changed_offers else []
    delisted: list[OpenPrice] = []
    if poll.covers:
        models = provider_prices.offers_of_gpu(poll.gpu)
        delisted = [
            price for model in models for price in model.values() if price.mark != mark and _is_covered(price, poll)
        ]
    return AnswerChanges(price_changes, delisted, facts)


def _changed_offers(
    answer: Answer, provider_prices: ProviderPrices, mark: int, *, saves_quotes: bool
) -> tuple[list[Offer], list[tuple[OpenPrice, Offer]]]:
    """Return the offers that differ from before. This loop runs for every offer of every answer."""
    changed: list[Offer] = []
    facts: list[tuple[OpenPrice, Offer]] = []
    models = provider_prices.models
    gpu, model = "", dict[Key, OpenPrice]()
    for offer in answer.offers:
        if offer.gpu != gpu:
            gpu = offer.gpu
            model = models[gpu] if gpu in models else {}  # noqa: SIM401 saves a call for almost every offer
        open_price = model.get((offer.machine_id, offer.gpu_count))
        if (
            open_price is None
            or open_price.quoted_usd_hour != offer.quoted_usd_hour
            or open_price.disk_usd_gb_month != offer.disk_usd_gb_month
            or open_price.quoted_disk_gb != offer.quoted_disk_gb
        ):
            if open_price is None or not _has_same_price(open_price, offer):
                changed.append(offer)
                continue
            if saves_quotes:  # hunts request other disks: their quotes do not recur
                save_quote(open_price, offer)
        open_price.mark = mark
        if (
            open_price.verification is not offer.verification
            or open_price.download_usd_gb != offer.download_usd_gb
            or open_price.upload_usd_gb != offer.upload_usd_gb
            or (not offer.gpu_count and open_price.size != size_of(offer))
        ):
            facts.append((open_price, offer))
    return changed, facts


def _has_same_price(open_price: OpenPrice, offer: Offer) -> bool:
    """Whether the quote equals the stored price. If rounding leaves doubt, it does not, and the offer is priced."""
    if stored_disk_rate(offer.disk_usd_gb_month) != open_price.disk_microusd:
        return False
    listed = open_price.machine_microusd + disk_microusd_hour(open_price.disk_microusd, offer.quoted_disk_gb)
    return abs(offer.quoted_usd_hour * MICRO - listed) < 0.499


class _PriceComparison:
    """Prices the offers that differ."""

    def __init__(self, prices: OpenPrices, poll: RecordedPoll, mark: int, facts: list[tuple[OpenPrice, Offer]]) -> None:
        self._prices = prices
        self._poll = poll
        self._mark = mark
        self._facts = facts

    def compare(self, offers: list[Offer]) -> list[PriceChange]:
        """Return new and repriced offers; the cheapest if an identity appears twice."""
        cheapest: dict[tuple[str, str, int, bool], PriceChange] = {}
        for offer in offers:
            machine_id = stored_machine_id(offer)
            gpu = storable_text(offer.gpu, 200)
            provider_prices = self._prices.prices_of(self._poll.provider, int(offer.spot))
            previous = provider_prices.models.get(gpu, {}).get((machine_id, offer.gpu_count))
            machine, disk = price_parts(offer)
            change = PriceChange(offer, machine_id, machine, disk, previous)
            key = (gpu, machine_id, offer.gpu_count, offer.spot)
            other = cheapest.get(key)
            if other is None or _reference_price(change) < _reference_price(other):
                cheapest[key] = change
        return [one for one in cheapest.values() if self._differs(one)]

    def _differs(self, change: PriceChange) -> bool:
        previous = change.previous
        if previous is None:
            return True
        is_cheaper = _reference_price(change) < reference_microusd(previous.machine_microusd, previous.disk_microusd)
        if previous.mark == self._mark and not is_cheaper:  # an unchanged, cheaper twin is in this answer
            return False
        previous.mark = self._mark
        margin = 0 if self._poll.lane == "sweep" else HUNT_TOLERANCE_MICROUSD
        if (
            previous.disk_microusd != change.disk_microusd
            or abs(previous.machine_microusd - change.machine_microusd) > margin
        ):
            return True
        if not previous.has_facts_of(change.offer):
            self._facts.append((previous, change.offer))
        return False


def save_quote(open_price: OpenPrice, offer: Offer) -> None:
    """Store a quote, so that the same quote is recognised next time."""
    open_price.quoted_usd_hour = offer.quoted_usd_hour
    open_price.disk_usd_gb_month = offer.disk_usd_gb_month
    open_price.quoted_disk_gb = offer.quoted_disk_gb


def price_parts(offer: Offer) -> tuple[int, int | None]:
    """Return the price without disk, and the disk's price per GB and month.

    With the quoted disk they give the quote, to the micro-dollar.
    """
    disk = stored_disk_rate(offer.disk_usd_gb_month)
    quoted = price_of(offer, None, _NO_COMMISSION).listed_microusd_hour
    return quoted - disk_microusd_hour(disk, offer.quoted_disk_gb), disk


def stored_disk_rate(usd_gb_month: float | None) -> int | None:
    """Return the price of a disk as stored; None: unknown or impossible."""
    if usd_gb_month is None or not 0 <= usd_gb_month * MICRO < _MAX_MICROUSD:
        return None
    return round(usd_gb_month * MICRO)


def reference_microusd(machine_microusd: int, disk_microusd_gb_month: int | None) -> int:
    """Return the listed price with the reference disk."""
    return machine_microusd + disk_microusd_hour(disk_microusd_gb_month, REFERENCE_DISK_GB)


def stored_machine_id(offer: Offer) -> str:
    """Return the machine's name as stored."""
    return storable_text(offer.identity.machine_id, 64)


def _reference_price(change: PriceChange) -> int:
    return reference_microusd(change.machine_microusd, change.disk_microusd)


def _is_covered(open_price: OpenPrice, poll: RecordedPoll) -> bool:
    if poll.complete_to_microusd is None:
        return True
    return reference_microusd(open_price.machine_microusd, open_price.disk_microusd) <= poll.complete_to_microusd
