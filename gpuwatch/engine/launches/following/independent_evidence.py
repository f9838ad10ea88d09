"""Evidence about a missing instance besides lists and lookups: whether its offer is for rent again, and the balance."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from gpuwatch.domain.launches.instances.absence import EvidenceKind
from gpuwatch.domain.launches.instances.balance_evidence import BalanceReading, is_unpaid, read_balance
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.engine.launches.guarding.instance_listing import InstanceListing
from gpuwatch.engine.market.watch_search import PAGE_ROWS, search_complete
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Answer, Launcher, Market, Query

log = logging.getLogger(__name__)

QUERY_EVERY_S = 60.0
_PAID_FOR = "the balance falls as if the instance was paid for"
_CEILING = 1.1  # × the listed price: a renewed offer is expected at or under this


class IndependentFindings(msgspec.Struct, frozen=True):
    """Findings: kinds of evidence for an absence, and doubts about it."""

    kinds: frozenset[EvidenceKind] = frozenset()
    doubts: tuple[str, ...] = ()


class IndependentEvidence:
    """Collects evidence at most once a minute for each launch; call `begin` first, to compare balances.

    Args:
        market: None: no market to search (a command beside a daemon).
        monotonic: seconds.
    """

    def __init__(self, launcher: Launcher, market: Market | None, monotonic: Callable[[], float]) -> None:
        self._launcher = launcher
        self._market = market
        self._monotonic = monotonic
        self._first: dict[str, BalanceReading] = {}
        self._baseline_s: dict[str, float] = {}
        self._collected_s: dict[str, float] = {}

    def is_due(self, launch: Launch) -> bool:
        """Whether evidence about this launch may be collected again."""
        return self._is_due(self._collected_s, launch)

    def begin(self, launch: Launch, listing: InstanceListing) -> None:
        """Read the balance as a baseline, unless there is one."""
        if launch.launch_id not in self._first and self._is_due(self._baseline_s, launch):
            self._baseline_s[launch.launch_id] = self._monotonic()
            reading = self._balance(listing)
            if reading is not None:
                self._first[launch.launch_id] = reading

    def possible(self, launch: Launch) -> set[EvidenceKind]:
        """Return the kinds of evidence that are available at all."""
        kinds = {EvidenceKind.OFFER} if self._market is not None and not launch.spot else set()
        return kinds | ({EvidenceKind.BALANCE} if launch.launch_id in self._first else set())

    def collect(self, launch: Launch, listing: InstanceListing) -> IndependentFindings:
        """Collect all evidence. A query that fails is no evidence."""
        self._collected_s[launch.launch_id] = self._monotonic()
        kinds, doubts = set(), []
        with suppress(ProviderError):
            if self._is_for_rent(launch):
                kinds.add(EvidenceKind.OFFER)
        unpaid = self._is_unpaid(launch, listing)
        if unpaid:
            kinds.add(EvidenceKind.BALANCE)
        elif unpaid is not None:
            doubts.append(_PAID_FOR)
        return IndependentFindings(frozenset(kinds), tuple(doubts))

    def forget(self, launch: Launch) -> None:
        """Forget a launch that was found or is over."""
        for known in (self._first, self._baseline_s, self._collected_s):
            known.pop(launch.launch_id, None)

    def _is_due(self, asked_s: Mapping[str, float], launch: Launch) -> bool:
        last_s = asked_s.get(launch.launch_id)
        return last_s is None or self._monotonic() - last_s >= QUERY_EVERY_S

    def _is_for_rent(self, launch: Launch) -> bool:
        """Whether exactly this offer is for rent: other GPUs of that machine prove nothing.

        Fungible stock is always for rent, and an interruptible offer is, too, while somebody else has it.
        """
        if self._market is None or launch.spot:
            return False
        query = Query(
            gpus=(launch.gpu,),
            count_min=launch.gpu_count,
            count_max=launch.gpu_count,
            disk_gb=launch.promised.disk_gb,
            max_listed_usd_hour=launch.listed_microusd_hour * _CEILING / MICRO,
            limit=PAGE_ROWS,
        )
        _, offer = search_complete(self._market.search, query, lambda answer: _offer_of(launch, answer))
        return offer is not None and offer.rentable and not offer.terms.fungible

    def _is_unpaid(self, launch: Launch, listing: InstanceListing) -> bool | None:
        first = self._first.get(launch.launch_id)
        last = None if first is None else self._balance(listing)
        if first is None or last is None:
            return None
        if first.listed != last.listed or last.balance_microusd > first.balance_microusd:
            self._first[launch.launch_id] = last  # instances changed or credit was added: compare from here on
            return None
        return is_unpaid(first, last, launch.listed_microusd_hour)

    def _balance(self, listing: InstanceListing) -> BalanceReading | None:
        try:
            balance_usd = self._launcher.credit_usd()
        except ProviderError as error:
            log.info("the balance is unknown: %s", error, extra={"provider": self._launcher.name})
            return None
        if balance_usd is None:
            return None
        return read_balance(self._monotonic(), balance_usd, listing.by_id.values())


def _offer_of(launch: Launch, answer: Answer) -> Offer | None:
    return next(
        (offer for offer in answer.offers if (offer.offer_id, offer.spot) == (launch.offer_id, launch.spot)),
        None,
    )
