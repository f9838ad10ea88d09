"""Records the answers of a `check`, a process of a second: on SQLite without SQLAlchemy, whose import takes longer.

It shares the recording with the daemon (`recording`); only the connection and what it reads first are different.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.ports import Answer, Query
from gpuwatch.storage.answer_changes import clean, disk_part_microusd, machine_of, stored_disk_rate
from gpuwatch.storage.executor import Executor, Row
from gpuwatch.storage.light_reader import connect_sqlite, plain_sqlite_path, revision_of
from gpuwatch.storage.open_prices import (
    OPEN_ROWS,
    VERIFICATIONS,
    OpenPrices,
    load_covers,
    load_ids,
    load_open,
)
from gpuwatch.storage.price_sources import split_by_source
from gpuwatch.storage.recording import apply_to_memory, clock_stepped_back, seconds, write_answer
from gpuwatch.storage.schema_head import newest_schema

LANE = "check"
_CODES, _STATES = tuple(VERIFICATIONS), (None, *VERIFICATIONS.values())
_MAX_SINGLE_READS = 400  # with more offers than this, all open prices are read instead
_OPEN_OF = OPEN_ROWS + " AND s.segment_id = ? AND s.machine_id = ?"
# A line for each open price: GPU, price, disk rate, verification, machine. One text for all is read in half the time.
_OPEN_LINES = """SELECT group_concat(s.segment_id || ' ' || (
 SELECT p.machine_microusd_hour || ' ' || ifnull(p.disk_microusd_gb_month, '') FROM price_interval p
 WHERE p.series_id = s.id ORDER BY p.seen_from_s DESC LIMIT 1
 ) || ' ' || ifnull(s.verification, '') || ' ' || s.machine_id, char(10))
 FROM series s WHERE s.on_offer = 1 AND instr(s.machine_id, char(10)) = 0"""


def record_answers(database_url: str, answers: Sequence[tuple[Query, Answer]], now: datetime) -> None:
    """Store all answers of one check, made at `now`. Creates a missing database.

    Raises:
        StoreNotReady: the schema is older; nothing was stored.
        StoreError: nothing, or not everything, was stored.
    """
    path = plain_sqlite_path(database_url)
    if path is None or not _record_light(path, answers, seconds(now)):
        _record_with_sqlalchemy(database_url, answers)


def _record_with_sqlalchemy(database_url: str, answers: Sequence[tuple[Query, Answer]]) -> None:
    """Record with SQLAlchemy: PostgreSQL, a new database, or a clock that stepped back; fails on an older schema."""
    from gpuwatch.storage.database import open_database  # noqa: PLC0415 250 ms, only if needed
    from gpuwatch.storage.history_recorder import SqlHistoryRecorder  # noqa: PLC0415
    from gpuwatch.storage.migrate import create_or_require_head  # noqa: PLC0415

    database = open_database(database_url)
    try:
        create_or_require_head(database)
        history = SqlHistoryRecorder(database)
        for query, answer in answers:
            history.record(answer, lane=LANE, gpu=_gpu(query), spot=query.spot)
    finally:
        database.close()


def _record_light(path: Path, answers: Sequence[tuple[Query, Answer]], now_s: int) -> bool:
    """Record with the driver alone; False: this database needs SQLAlchemy, and nothing was written."""
    if not path.is_file():
        return False
    with connect_sqlite(path) as connection:
        executor = Executor(connection.cursor())
        if revision_of(executor) != newest_schema():
            return False
        connection.execute("BEGIN IMMEDIATE")
        prices = OpenPrices()
        prices.version, prices.next_hour = executor.rows("SELECT version, next_hour FROM history_state WHERE id = 1")[0]
        load_ids(executor, prices)
        load_covers(executor, prices)
        # a check ends no offers, so kinds of price that this answer lacks need no empty part
        parts = [(query, part) for query, answer in answers for part in split_by_source(answer, lambda name: False)]
        parts = [(query, _changed_offers(executor, prices, part)) for query, part in parts]
        if any(clock_stepped_back(prices, answer.provider, now_s) for _, answer in answers):
            connection.execute("ROLLBACK")
            return False
        for query, answer in parts:
            apply_to_memory(write_answer(executor, prices, answer, LANE, _gpu(query), query.spot), prices)
        connection.execute("COMMIT")
        return True


def _changed_offers(executor: Executor, prices: OpenPrices, answer: Answer) -> Answer:
    """Return the answer with only the differing offers, and load their stored prices.

    A check covers nothing, so unchanged offers need no writing. They are most of a big answer, and lines of text are
    enough to recognise them: objects would take four times as long.
    """
    if len(answer.offers) <= _MAX_SINGLE_READS:
        differing = answer.offers
    else:
        differing = _differing_offers(executor, prices, answer)
        if not differing:
            return replace(answer, offers=[])
    keys = {_key(offer): None for offer in differing}  # ordered: the ids of new rows follow this order
    load_open((row for key in keys for row in _open_rows(executor, prices, answer.provider, key)), prices)
    if len(differing) < len(answer.offers):  # with their twins: the cheaper of two offers of one machine counts
        changed_ids = set(map(id, differing))
        machines = {offer.machine_id for offer in differing}.union(machine for _, _, _, machine in keys)
        differing = [
            offer
            for offer in answer.offers
            if offer.machine_id in machines and (id(offer) in changed_ids or _key(offer) in keys)
        ]
    return replace(answer, offers=differing)


def _differing_offers(executor: Executor, prices: OpenPrices, answer: Answer) -> list[Offer]:
    """Return offers whose quote differs from the stored price. This loop runs for every offer of a big answer.

    If rounding leaves doubt, an offer differs and is priced exactly.
    """
    stored = frozenset((executor.rows(_OPEN_LINES)[0][0] or "").split("\n"))
    segments = {key[1:]: number for key, number in prices.segments.items() if key[0] == answer.provider}
    differing: list[Offer] = []
    disk_gb, disks = -1.0, dict[float | None, tuple[int, list[str]]]()  # rate → hourly price, the middle of the line
    for offer in answer.offers:
        if offer.quoted_disk_gb != disk_gb:
            disk_gb = offer.quoted_disk_gb
            disks.clear()
        disk = disks.get(offer.disk_usd_gb_month)
        if disk is None:
            rate = stored_disk_rate(offer.disk_usd_gb_month)
            middles = [f" {'' if rate is None else rate} {code} " for code in ("", *_CODES)]
            disk = disks[offer.disk_usd_gb_month] = disk_part_microusd(rate, disk_gb), middles
        microusd = offer.quoted_usd_hour * MICRO - disk[0]
        price, machine = round(microusd), offer.machine_id
        segment = segments.get((offer.gpu, offer.gpu_count, offer.spot))
        line = f"{segment} {price}{disk[1][_STATES.index(offer.verification)]}{machine}"
        if line not in stored or machine is None or not -0.499 < microusd - price < 0.499:
            differing.append(offer)
    return differing


def _key(offer: Offer) -> tuple[str, int, bool, str]:
    return clean(offer.gpu, 200), offer.gpu_count, offer.spot, machine_of(offer)


def _open_rows(executor: Executor, prices: OpenPrices, provider: str, key: tuple[str, int, bool, str]) -> Sequence[Row]:
    gpu, gpu_count, spot, machine = key
    segment = prices.segments.get((provider, gpu, gpu_count, int(spot)))
    return () if segment is None else executor.rows(_OPEN_OF, (segment, machine))


def _gpu(query: Query) -> str:
    return query.gpus[0] if len(query.gpus) == 1 else ""
