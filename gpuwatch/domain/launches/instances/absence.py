"""Proof that an instance does not exist, from several kinds of evidence. An empty list is not evidence. Pure.

Background of the rules: a marketplace that answered "no instances" while it billed three made other schedulers rent
again and again, and a lagging list shows a new instance only after a while. So only complete listings count that
contain every instance believed to be alive (the canary). A list can be wrong for a long time, so it never proves
anything alone. Time is a condition, not a kind of evidence:

- If the id is known and the instance was seen before: complete listings without it, together with the provider's answer
  "gone" for its id, three times in a row over QUICK_SPAN_S.
- In all other cases, above all an order whose answer was lost: two kinds of evidence three times in a row, not before
  ABSENCE_WAIT_S after the first listing.

One kind of evidence is computed here, too: the account balance, because an existing instance is paid for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.market.money import MICRO

ABSENCE_WAIT_S = 1800.0  # no provider documents how late a create can take effect; a safe guess
PROOF_WITHIN_S = 600.0  # after that wait: what is not proven by then never will be
REPORT_AFTER_S = 600.0  # then the owner gets an alert, if a proof looks unlikely
QUICK_SPAN_S = 60.0  # from the first to the last of the answers that prove a known instance gone
AGREEING_NEEDED = 3
KINDS_NEEDED = 2

SPAN_S = 900.0  # balances are not updated every minute; a shorter time proves nothing
_HALF = 0.5  # of the expected cost of the instance
_MEASURED = 10_000  # micro-dollars: smaller amounts are lost in rounding


class AbsenceVerdict(StrEnum):
    """What the evidence so far proves."""

    UNPROVEN = "looking"
    ABSENT = "absent"
    CANNOT_PROVE = "cannot prove"


class EvidenceKind(StrEnum):
    """A kind of evidence for an absence; two pieces of one kind count once."""

    LISTS = "complete lists do not show it"
    LOOKUP = "a lookup by id finds nothing"
    OFFER = "its offer can be rented again"
    BALANCE = "the balance does not pay for it"


class MissedListing(msgspec.Struct, frozen=True, kw_only=True):
    """What one complete listing without the instance shows, and the other evidence of that moment.

    Attributes:
        tick_s: a monotonic clock, so that no change of the wall clock shortens a wait.
        seen_before: its id is known, and it was seen in a list or an answer.
        queried_all: all sources were queried; otherwise only the cheap ones (lists, its id).
        possible_kinds: the number of kinds of evidence that hold or may still hold.
        doubts: evidence against its absence, as text.
        candidates: ids of instances that belong to no launch and may be the missing one.
    """

    tick_s: float
    kinds: frozenset[EvidenceKind] = frozenset()
    seen_before: bool = False
    queried_all: bool = True
    possible_kinds: int = KINDS_NEEDED
    doubts: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether there is any evidence against its absence."""
        return bool(self.doubts or self.candidates)


class BalanceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One balance reading.

    Attributes:
        tick_s: a monotonic clock.
        listed_microusd_hour: the listed price of the listed instances; None: a price is missing.
        listed: their ids and prices; only readings with the same instances are compared.
    """

    tick_s: float
    balance_microusd: int
    listed_microusd_hour: int | None
    listed: frozenset[tuple[str, int | None]]


class AbsenceEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence about one missing instance.

    It is kept in memory: after a restart it starts from scratch, which is safe. `since_s` is the first listing without
    it, which is never before the order.
    """

    since_s: float
    not_found: int = 0  # consecutive listings without it, each with the answer "gone" for its id
    not_found_since_s: float = 0.0
    proven: int = 0  # consecutive listings, after the wait, in which two kinds of evidence agreed
    unprovable: int = 0  # consecutive listings with evidence against its absence, or without the chance of a proof
    failing_since_s: float | None = None  # no usable listing since then

    def with_listing(self, seen: MissedListing, wait_s: float = ABSENCE_WAIT_S) -> AbsenceEvidence:
        """Count one more complete listing without it."""
        is_gone = seen.seen_before and not seen.is_doubtful and EvidenceKind.LOOKUP in seen.kinds
        not_found = self.not_found + 1 if is_gone else 0
        is_unprovable = seen.is_doubtful or seen.possible_kinds < KINDS_NEEDED
        return AbsenceEvidence(
            since_s=self.since_s,
            not_found=not_found,
            not_found_since_s=seen.tick_s if not_found <= 1 else self.not_found_since_s,
            proven=self._proven(seen, wait_s),
            unprovable=self.unprovable + 1 if is_unprovable else 0,
        )

    def _proven(self, seen: MissedListing, wait_s: float) -> int:
        if seen.is_doubtful or seen.tick_s - self.since_s < wait_s:
            return 0
        if not seen.queried_all:
            return self.proven
        return self.proven + 1 if len(seen.kinds) >= KINDS_NEEDED else 0

    def without_listing(self, tick_s: float) -> AbsenceEvidence:
        """Count a listing that failed, or that omits an instance believed to be alive: all counts start again."""
        since_s = tick_s if self.failing_since_s is None else self.failing_since_s
        return AbsenceEvidence(since_s=self.since_s, failing_since_s=since_s)

    def verdict(self, tick_s: float, known: bool = False, wait_s: float = ABSENCE_WAIT_S) -> AbsenceVerdict:
        """Return whether it is absent, still being looked for, or cannot be proven absent.

        Args:
            known: its id is known; then CANNOT_PROVE decides nothing, and the owner gets an early alert.
        """
        if self.not_found >= AGREEING_NEEDED and tick_s - self.not_found_since_s >= QUICK_SPAN_S:
            return AbsenceVerdict.ABSENT
        if self.proven >= AGREEING_NEEDED:
            return AbsenceVerdict.ABSENT
        return AbsenceVerdict.CANNOT_PROVE if self._is_late(tick_s, known, wait_s) else AbsenceVerdict.UNPROVEN

    def _is_late(self, tick_s: float, known: bool, wait_s: float) -> bool:
        waited_s = tick_s - self.since_s
        if known or self.unprovable >= AGREEING_NEEDED:
            return waited_s >= REPORT_AFTER_S
        if self.failing_since_s is not None and tick_s - self.failing_since_s >= REPORT_AFTER_S:
            return waited_s >= wait_s
        return waited_s >= wait_s + PROOF_WITHIN_S and not self.proven


def omits_live_instances(listed: Collection[str], believed_alive: Collection[str]) -> bool:
    """Return whether a listing lacks one of these ids. Then it proves nothing about any other instance."""
    return not set(believed_alive) <= set(listed)


def has_canary(listed: Collection[str], believed_alive: Collection[str], foreign_before: Collection[str]) -> bool:
    """Return whether a listing can be trusted.

    Args:
        listed: the instance ids in it.
        believed_alive: ids of our own running or starting instances; all of them must be listed.
        foreign_before: other instances of the account in an earlier listing; one is enough if none is ours.
    """
    if omits_live_instances(listed, believed_alive):
        return False
    return bool(believed_alive) or not set(foreign_before).isdisjoint(listed)


def read_balance(tick_s: float, balance_usd: float, instances: Iterable[Instance]) -> BalanceReading:
    """Read the balance together with the instances listed at that moment."""
    listed = frozenset((instance.instance_id, _microusd_hour(instance)) for instance in instances)
    prices = [price for _, price in listed]
    known = [price for price in prices if price is not None]
    return BalanceReading(
        tick_s=tick_s,
        balance_microusd=round(balance_usd * MICRO),
        listed_microusd_hour=sum(known) if len(known) == len(prices) else None,
        listed=listed,
    )


def is_unpaid(first: BalanceReading, last: BalanceReading, microusd_hour: int) -> bool | None:
    """Return whether nobody pays for an instance of this listed price; None: the balance does not show it.

    With other instances, the balance must fall by their cost, otherwise it is not up to date. Without any, it must not
    change.
    """
    if first.listed != last.listed or last.listed_microusd_hour is None or last.tick_s - first.tick_s < SPAN_S:
        return None
    hours = (last.tick_s - first.tick_s) / 3600
    paid, others = first.balance_microusd - last.balance_microusd, last.listed_microusd_hour * hours
    its_own = microusd_hour * hours
    if its_own * _HALF < _MEASURED or paid < 0:  # too cheap to be visible, or money was paid in
        return None
    if paid > others + its_own * _HALF:
        return False
    return True if paid >= others * _HALF else None


def _microusd_hour(instance: Instance) -> int | None:
    runs = instance.state in {InstanceState.RUNNING, InstanceState.STARTING}
    price = instance.listed_usd_hour if runs else instance.stopped_usd_hour
    return None if price is None else round(price * MICRO)
