"""The market as it was at any moment, exactly, out of the intervals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby

import msgspec

from gpuwatch.domain.market.offer import Identity, Verification
from gpuwatch.storage.answer_changes import REFERENCE_DISK_GB, disk_part_microusd, verification_from
from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import CoreExecutor, Executor, Row
from gpuwatch.storage.hourly_rollup import COVER_LASTS_S
from gpuwatch.storage.recording import seconds

_NEVER = -1
_COVERS = """SELECT provider, gpu, spot, max(at_s) FROM poll WHERE covers = 1 AND at_s <= ?
 GROUP BY provider, gpu, spot"""
_INTERVALS = """SELECT p.series_id, g.provider, g.gpu, g.gpu_count, g.spot, s.machine_id, p.seen_from_s, p.seen_to_s,
 p.machine_microusd_hour, p.disk_microusd_gb_month, s.offer_id, s.reliability_ppm, s.verification, w.region, w.country
 FROM price_interval p JOIN series s ON s.id = p.series_id JOIN segment g ON g.id = s.segment_id
 JOIN place w ON w.id = s.place_id
 WHERE p.seen_from_s <= ? AND (p.seen_to_s IS NULL OR p.seen_to_s >= ?)"""
_OF_GPU = " AND (g.gpu = ? OR g.gpu_family = ?)"
_ORDER = " ORDER BY p.series_id, p.seen_from_s"


class SnapshotOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An identity that was on offer. Its price is exact; the facts are the newest ones that are known of it."""

    identity: Identity
    machine_microusd_hour: int  # without disk
    disk_microusd_gb_month: int | None
    since: datetime  # at this price
    offer_id: str
    region: str | None
    country: str | None
    reliability: float | None
    verification: Verification | None

    def listed_microusd_hour(self, disk_gb: float = REFERENCE_DISK_GB) -> int:
        """The listed price of the whole offer with a disk of this size."""
        return self.machine_microusd_hour + disk_part_microusd(self.disk_microusd_gb_month, disk_gb)


class MarketSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The market at a moment, as far as it is known: without `known`, an empty list does not mean "no offers"."""

    offers: tuple[SnapshotOffer, ...]
    known: bool  # somebody had read it all, not long before


def market_at(database: Database, moment: datetime, gpu: str | None = None) -> MarketSnapshot:
    """What was on offer at a moment; `gpu` is a canonical name or a family, None: everything.

    Raises:
        StoreError: the database cannot be read.
    """
    at_s = seconds(moment)
    with database.read() as connection:
        executor = CoreExecutor(connection)
        covers = {(row[0], row[1], row[2]): int(row[3]) for row in executor.rows(_COVERS, (at_s,))}
        rows = _intervals(executor, at_s, _oldest_cover(executor, covers), gpu)
        kept_from_s = executor.rows("SELECT kept_from_s FROM history_state WHERE id = 1")[0][0]
    newest = [list(same)[-1] for _, same in groupby(rows, key=lambda row: row[0])]
    offers = tuple(
        _snapshot_offer(row) for row in newest if row[7] is None or row[7] >= _cover(covers, row[1], row[2], row[4])
    )
    speaking = [when for (_, name, _), when in covers.items() if gpu is None or name in {"", gpu} or _in(offers, name)]
    covered_s = max(speaking, default=None)
    fresh = covered_s is not None and at_s - covered_s < COVER_LASTS_S
    return MarketSnapshot(
        offers=offers,
        known=fresh and (kept_from_s is None or at_s >= kept_from_s),
    )


def _intervals(executor: Executor, at_s: int, oldest_cover_s: int, gpu: str | None) -> Sequence[Row]:
    """What may have been on offer then, each identity's newest price last."""
    if gpu is None:
        return executor.rows(_INTERVALS + _ORDER, (at_s, oldest_cover_s))
    return executor.rows(_INTERVALS + _OF_GPU + _ORDER, (at_s, oldest_cover_s, gpu, gpu))


def _oldest_cover(executor: Executor, covers: dict[tuple[str, str, int], int]) -> int:
    """What was last seen before it cannot have been on offer any more, whatever it is."""
    segments = executor.rows("SELECT DISTINCT provider, gpu, spot FROM segment WHERE provider <> ''")
    return min((_cover(covers, *segment) for segment in segments), default=_NEVER)


def _cover(covers: dict[tuple[str, str, int], int], provider: str, gpu: str, spot: int) -> int:
    return max(covers.get((provider, "", spot), _NEVER), covers.get((provider, gpu, spot), _NEVER))


def _in(offers: Sequence[SnapshotOffer], gpu: str) -> bool:
    return any(one.identity.gpu == gpu for one in offers)


def _snapshot_offer(row: Row) -> SnapshotOffer:
    _, provider, gpu, count, spot, machine, from_s, _, price, disk, offer_id, ppm, verification, region, country = row
    return SnapshotOffer(
        identity=Identity(provider, machine, gpu, count, bool(spot)),
        machine_microusd_hour=price,
        disk_microusd_gb_month=disk,
        since=datetime.fromtimestamp(from_s, UTC),
        offer_id=offer_id,
        region=region or None,
        country=country or None,
        reliability=None if ppm is None else ppm / 1e6,
        verification=verification_from(verification),
    )
