"""What really happened, kept apart from what the protocol admits: for tests to audit, append-only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

MICROUSD_PER_USD = 1_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One create, destroy or bid change; prices in micro-dollars per hour for the whole offer."""

    at: float
    kind: str
    instance_id: int
    offer_id: int
    machine_id: int
    label: str | None
    price_microusd_hour: int
    is_bid: bool


@dataclass(slots=True)
class Meter:
    """What one instance costs: closed spans of seconds at a rate, and the span that is open."""

    closed_usd: Decimal = Decimal(0)
    since: float = 0.0
    usd_hour: Decimal = Decimal(0)

    def set_rate(self, now: float, usd_hour: float) -> None:
        """Go on at another rate from now."""
        self.closed_usd = self.usd(now)
        self.since, self.usd_hour = now, Decimal(repr(usd_hour))

    def usd(self, now: float) -> Decimal:
        """Answer the whole cost up to now, USD, unrounded."""
        seconds = Decimal(repr(max(0.0, now - self.since)))
        return self.closed_usd + self.usd_hour * seconds / 3600


@dataclass(slots=True)
class Ledger:
    """The marketplace's own books.

    Args:
        settle: brings the marketplace up to the present and answers it; called before anything is read.
    """

    settle: Callable[[], float]
    _entries: list[Entry] = field(default_factory=list)
    _meters: dict[int, Meter] = field(default_factory=dict)

    def append(self, entry: Entry) -> None:
        """Write one line; nothing is ever changed or taken out."""
        self._entries.append(entry)

    def meter(self, instance_id: int) -> Meter:
        """Answer the meter of an instance, a new one at first."""
        return self._meters.setdefault(instance_id, Meter())

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All lines, oldest first."""
        self.settle()
        return tuple(self._entries)

    @property
    def creates(self) -> tuple[Entry, ...]:
        """Every instance that was ever made, whether or not anybody was told."""
        return tuple(entry for entry in self.entries if entry.kind == "create")

    @property
    def destroys(self) -> tuple[Entry, ...]:
        """Every destroy that took effect."""
        return tuple(entry for entry in self.entries if entry.kind == "destroy")

    def creates_by_label(self) -> dict[str | None, int]:
        """Count the creates under the label that each was made with."""
        return dict(Counter(entry.label for entry in self.creates))

    def alive(self) -> tuple[int, ...]:
        """Answer the instances that were made and not destroyed, by id."""
        entries = self.entries
        gone = {entry.instance_id for entry in entries if entry.kind == "destroy"}
        return tuple(e.instance_id for e in entries if e.kind == "create" and e.instance_id not in gone)

    def bill_microusd(self, instance_id: int | None = None) -> int:
        """Answer what one instance, or everything, has cost so far, in whole micro-dollars."""
        now = self.settle()
        return micro(self.spent_usd(now, instance_id))

    def spent_usd(self, now: float, instance_id: int | None = None) -> Decimal:
        """Sum the meters without settling first."""
        if instance_id is not None:
            return self._meters[instance_id].usd(now) if instance_id in self._meters else Decimal(0)
        return sum((meter.usd(now) for meter in self._meters.values()), Decimal(0))

    def burn_usd_hour(self) -> Decimal:
        """Answer what is being spent just now, USD per hour."""
        return sum((meter.usd_hour for meter in self._meters.values()), Decimal(0))

    def summary(self) -> dict[str, Any]:
        """Answer everything as one JSON object, for other processes."""
        return {
            "creates": [asdict(entry) for entry in self.creates],
            "destroys": [asdict(entry) for entry in self.destroys],
            "creates_by_label": {label or "": count for label, count in self.creates_by_label().items()},
            "alive": list(self.alive()),
            "bills_microusd": {str(key): self.bill_microusd(key) for key in list(self._meters)},
            "bill_microusd": self.bill_microusd(),
        }


def micro(usd: Decimal | float) -> int:
    """Round USD half-even to whole micro-dollars."""
    exact = usd if isinstance(usd, Decimal) else Decimal(repr(usd))
    return int((exact * MICROUSD_PER_USD).to_integral_value(ROUND_HALF_EVEN))
