"""Where the past comes from: the store, or a file of price rows that the owner names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.analysis.scope import Scope
    from gpuwatch.analysis.series import PriceSeries
    from gpuwatch.analysis.tape import Spell, Tape
    from gpuwatch.market.offer import OfferKind
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

log = logging.getLogger(__name__)

_NEWEST = """SELECT g.provider, g.gpu, MAX(p.seen_from_s) FROM price_interval p JOIN series s ON s.id = p.series_id
 JOIN segment g ON g.id = s.segment_id GROUP BY g.provider, g.gpu"""


def gpus_named(text: str, seen: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Canonical names that an owner's text stands for; one that only the store has met stands for itself.

    Raises:
        UsageError: nobody has ever spelled a GPU so.
    """
    from gpuwatch.market.gpu_names import catalog

    found = catalog().wanted(text)
    if not found and text not in seen:
        near = " or ".join(catalog().suggest(text))
        raise UsageError(f"no GPU is called {text!r}" + (f"; did you mean {near}?" if near else ""))
    return found or (text,)


def gpus_meant(settings: Settings, text: str, data: Path | None) -> tuple[str, ...]:
    """Canonical names; where a store is asked, spellings that it has met stand for themselves. Raises UsageError."""
    from gpuwatch.storage.questions import spellings_seen

    if data is not None:
        return gpus_named(text)
    with opened_store(settings) as database:
        return gpus_named(text, frozenset(spellings_seen(database)))


@contextmanager
def opened_store(settings: Settings) -> Iterator[Database]:
    """The store, for reading; it must have this program's schema. Raises StoreError."""
    from gpuwatch.storage.database import open_database
    from gpuwatch.storage.migrate import require_head

    database = open_database(settings.database_url)
    try:
        require_head(database)
        yield database
    finally:
        database.close()


def past_tape(settings: Settings, scope: Scope, since: datetime, until: datetime, data: Path | None) -> Tape:
    """A stretch of the past of a part of the market.

    Args:
        data: a file of price rows, read whole and cut to the stretch; None: the store.

    Raises:
        UsageError: the file is no good.
        StoreError: the store cannot be read.
    """
    if data is None:
        from gpuwatch.storage.tapes import read_tape

        with opened_store(settings) as database:
            return read_tape(database, scope, since, until)
    return _file_tape(data, scope, since, until)


def past_series(settings: Settings, scope: Scope, since: datetime, until: datetime, data: Path | None) -> PriceSeries:
    """The lowest GPU price of each hour of a stretch, commission included. Arguments and faults as `past_tape`."""
    from gpuwatch.analysis.series import series_of

    tape = past_tape(settings, scope, since, until, data)
    return series_of(tape, pricer(settings, tape))


def newest_price(settings: Settings, gpus: tuple[str, ...] | None, provider: str | None) -> datetime | None:
    """When the store last saw a price of such offers come up; None: never. Raises StoreError."""
    from gpuwatch.storage.kinds import is_meant
    from gpuwatch.storage.reading import reading

    with reading(settings.database_url) as source:
        rows = source.rows(_NEWEST)
    times = [at_s for name, gpu, at_s in rows if is_meant(name, provider) and (gpus is None or gpu in gpus)]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def gpu_price(settings: Settings, tape: Tape, spell: Spell) -> float:
    """Micro-dollars per GPU-hour, commission included, with the reference disk. For many: `pricer`."""
    return pricer(settings, tape)(spell.listing, spell)


def pricer(settings: Settings, tape: Tape) -> Callable[[int, Spell], float]:
    """What a GPU-hour of a spell of a listing costs: micro-dollars, commission included, with the reference disk."""
    from gpuwatch.storage.changes import REFERENCE_DISK_GB

    rates = rates_on_top(settings)

    def price(listing: int, spell: Spell) -> float:
        identity = tape.listings[listing].identity
        return (
            spell.listed_microusd_hour(REFERENCE_DISK_GB) * (1 + rates.get(identity.provider, 0.0)) / identity.gpu_count
        )

    return price


def rates_on_top(settings: Settings) -> Mapping[str, float]:
    """Provider → what is added to its listed prices: as set, or as it is by default for one that is not enabled."""
    from gpuwatch import providers

    found = {name: float(providers.info(name).commission.on_top_rate(None)) for name in providers.names()}
    return found | {name: float(one.commission.on_top_rate(None)) for name, one in settings.providers.items()}


def _file_tape(data: Path, scope: Scope, since: datetime, until: datetime) -> Tape:
    from gpuwatch.analysis.row_tapes import tape_of
    from gpuwatch.market.text import clean
    from gpuwatch.storage.price_files import read_rows

    found = read_rows(data)
    for reason, count in found.skipped.items():
        log.warning("%s: %d rows are left out: %s", data, count, reason)
    start_s, end_s = int(since.timestamp()), int(until.timestamp())
    rows = [row for row in found.rows if start_s <= row.at_s < end_s]
    tape = tape_of(rows, clean(data.name), kinds_of_providers({row.provider for row in rows}))
    if not rows and found.rows:
        days = (datetime.fromtimestamp(pick(row.at_s for row in found.rows), UTC) for pick in (min, max))
        log.warning(
            "%s: no row lies in the asked time; it reaches from %s to %s", data, *(f"{d:%Y-%m-%d}" for d in days)
        )
    return narrowed(tape, scope)


def kinds_of_providers(names: set[str]) -> dict[str, OfferKind]:
    """What the prices of these providers are where nothing says it: a provider without live prices lists."""
    from gpuwatch import providers
    from gpuwatch.market.offer import OfferKind

    known = {name: providers.info(name).kinds for name in names if name in providers.names()}
    return {name: OfferKind.LISTED for name, kinds in known.items() if OfferKind.LIVE not in kinds}


def narrowed(tape: Tape, scope: Scope) -> Tape:
    """The part of a tape that a question is about."""
    from msgspec.structs import replace

    from gpuwatch.market.offer import OfferKind

    wanted, _, kind = (scope.provider or "").partition(":")
    models = frozenset(listing.identity.gpu for listing in tape.listings)
    kept: dict[int, int] = {}
    for number, listing in enumerate(tape.listings):
        who = listing.identity
        fits_kind = (listing.kind is OfferKind.LISTED) == (kind == "listed") or not wanted
        if (
            fits_kind
            and wanted in ("", who.provider)
            and scope.has_gpu(who.gpu, listing.gpu_family, models)
            and scope.has_count(who.gpu_count)
            and scope.has_spot(who.spot)
        ):
            kept[number] = len(kept)
    meant = [tape.listings[number].identity for number in kept]
    scopes = {(who.provider, gpu, who.spot) for who in meant for gpu in ("", who.gpu)}
    return replace(
        tape,
        listings=tuple(tape.listings[number] for number in kept),
        spells=[one._replace(listing=kept[one.listing]) for one in tape.spells if one.listing in kept],
        polls=[poll for poll in tape.polls if (poll.provider, poll.gpu, poll.spot) in scopes],
    )
