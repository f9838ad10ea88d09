"""What really happened, regardless of what the protocol shows: append-only, for audits by tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, NamedTuple

MICROUSD_PER_USD = 1_000_000
END_KINDS = frozenset({"destroy", "expired"})


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One entry; prices in micro-dollars per hour for the whole offer.

    `kind` is `create`, `destroy`, `expired` (deleted by the marketplace), `bid`, or `rate` (the running price changed).
    """

    at: float
    kind: str
    instance_id: int
    offer_id: int
    machine_id: int
    label: str | None
    price_microusd_hour: int
    is_bid: bool


class MeteredSpan(NamedTuple):
    """A time span at constant rates; Unix seconds, USD per hour."""

    since: float
    until: float
    gpu_usd_hour: Decimal
    disk_usd_hour: Decimal

    @property
    def seconds(self) -> Decimal:
        """Its duration in seconds; 0, never negative, if the clock stepped back."""
        return Decimal(repr(max(0.0, self.until - self.since)))

    @property
    def usd(self) -> Decimal:
        """Its cost, unrounded."""
        return (self.gpu_usd_hour + self.disk_usd_hour) * self.seconds / 3600

    def clip(self, start: float, end: float) -> MeteredSpan:
        """Return the part of it in [start, end)."""
        return self._replace(since=max(self.since, start), until=min(self.until, end))


class TrafficCharge(NamedTuple):
    """Traffic: GB at a price, all at one time."""

    at: float
    kind: str  # `bwd` or `bwu`
    gb: Decimal
    usd_gb: Decimal


@dataclass(slots=True)
class BillingMeter:
    """The cost of one instance: closed spans, the open span, and its traffic."""

    spans: list[MeteredSpan] = field(default_factory=list)
    traffic_charges: list[TrafficCharge] = field(default_factory=list)
    closed_usd: Decimal = Decimal(0)
    since: float = 0.0
    gpu_usd_hour: Decimal = Decimal(0)
    disk_usd_hour: Decimal = Decimal(0)

    @property
    def usd_hour(self) -> Decimal:
        """The rate of the open span."""
        return self.gpu_usd_hour + self.disk_usd_hour

    def set_rates(self, now: float, gpu_usd_hour: Decimal, disk_usd_hour: Decimal) -> None:
        """Change the rates from now on; the same rates change nothing."""
        if (gpu_usd_hour, disk_usd_hour) == (self.gpu_usd_hour, self.disk_usd_hour):
            return
        closed = self._open_span(now)
        if closed.usd:
            self.spans.append(closed)
            self.closed_usd += closed.usd
        self.since, self.gpu_usd_hour, self.disk_usd_hour = now, gpu_usd_hour, disk_usd_hour

    def add(self, charge: TrafficCharge) -> None:
        """Charge traffic."""
        self.traffic_charges.append(charge)
        self.closed_usd += charge.gb * charge.usd_gb

    def usd(self, now: float) -> Decimal:
        """Return the total cost up to now, USD, unrounded."""
        return self.closed_usd + self._open_span(now).usd

    def spans_between(self, start: float, end: float, now: float) -> list[MeteredSpan]:
        """Return what was metered in [start, end) and before now, oldest first."""
        parts = [span.clip(start, end) for span in [*self.spans, self._open_span(now)]]
        return [part for part in parts if part.usd]

    def traffic(self, start: float, end: float) -> list[TrafficCharge]:
        """Return the traffic of [start, end)."""
        return [charge for charge in self.traffic_charges if start <= charge.at < end]

    def _open_span(self, now: float) -> MeteredSpan:
        return MeteredSpan(self.since, now, self.gpu_usd_hour, self.disk_usd_hour)


@dataclass(slots=True)
class Ledger:
    """The marketplace's own books.

    Args:
        settle: brings the marketplace up to date and returns the time; called before anything is read.
    """

    settle: Callable[[], float]
    _entries: list[LedgerEntry] = field(default_factory=list)
    _meters: dict[int, BillingMeter] = field(default_factory=dict)
    _open_meters: dict[int, BillingMeter] = field(default_factory=dict)  # the others no longer cost anything
    _closed_usd: Decimal = Decimal(0)
    _orders: dict[int, dict[str, Any]] = field(default_factory=dict)

    def append(self, entry: LedgerEntry) -> None:
        """Append one entry; entries are never changed or removed."""
        self._entries.append(entry)

    def meter(self, instance_id: int) -> BillingMeter:
        """Return the meter of an instance, a new one if necessary."""
        if instance_id not in self._meters:
            self._meters[instance_id] = self._open_meters[instance_id] = BillingMeter()
        return self._meters[instance_id]

    def close(self, instance_id: int, now: float) -> None:
        """Stop the meter of an instance that is gone."""
        meter = self._open_meters.pop(instance_id, None)
        if meter is not None:
            meter.set_rates(now, Decimal(0), Decimal(0))
            self._closed_usd += meter.closed_usd

    def store_order(self, instance_id: int, body: dict[str, Any]) -> None:
        """Keep the body of a create, including secrets: for audits here or over /control, never logged."""
        self._orders[instance_id] = body

    def order(self, instance_id: int) -> dict[str, Any]:
        """Return the body of the create of an instance, as it was sent."""
        self.settle()
        return dict(self._orders[instance_id])

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries, oldest first."""
        self.settle()
        return tuple(self._entries)

    @property
    def creates(self) -> tuple[LedgerEntry, ...]:
        """Every instance ever created, whether or not the answer arrived."""
        return tuple(entry for entry in self.entries if entry.kind == "create")

    @property
    def destroys(self) -> tuple[LedgerEntry, ...]:
        """Every destroy by the renter that took effect."""
        return tuple(entry for entry in self.entries if entry.kind == "destroy")

    def creates_by_label(self) -> dict[str | None, int]:
        """Count the creates by their label."""
        return dict(Counter(entry.label for entry in self.creates))

    def alive(self) -> tuple[int, ...]:
        """Return the instances that were created and neither destroyed nor deleted by the marketplace, by id."""
        entries = self.entries
        ended = {entry.instance_id for entry in entries if entry.kind in END_KINDS}
        return tuple(
            entry.instance_id for entry in entries if entry.kind == "create" and entry.instance_id not in ended
        )

    def bill_microusd(self, instance_id: int | None = None) -> int:
        """Return the cost so far of one instance, or of everything, in whole micro-dollars."""
        now = self.settle()
        return to_microusd(self.spent_usd(now, instance_id))

    def spent_usd(self, now: float, instance_id: int | None = None) -> Decimal:
        """Sum the meters without settling first."""
        if instance_id is not None:
            return self._meters[instance_id].usd(now) if instance_id in self._meters else Decimal(0)
        return sum((meter.usd(now) for meter in self._open_meters.values()), self._closed_usd)

    def burn_usd_hour(self) -> Decimal:
        """Return the current spend rate, USD per hour."""
        return sum((meter.usd_hour for meter in self._open_meters.values()), Decimal(0))

    def summary(self) -> dict[str, Any]:
        """Return everything as one JSON object, for other processes."""
        return {
            "creates": [asdict(entry) for entry in self.creates],
            "destroys": [asdict(entry) for entry in self.destroys],
            "creates_by_label": {label or "": count for label, count in self.creates_by_label().items()},
            "alive": list(self.alive()),
            "bills_microusd": {str(key): self.bill_microusd(key) for key in list(self._meters)},
            "bill_microusd": self.bill_microusd(),
        }


def to_microusd(usd: Decimal | float) -> int:
    """Round USD half-even to whole micro-dollars."""
    exact = usd if isinstance(usd, Decimal) else Decimal(repr(usd))
    return int((exact * MICROUSD_PER_USD).to_integral_value(ROUND_HALF_EVEN))
