"""The market on a page: how each GPU stands, out of the store or of a file of price rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.market.text import clean
from gpuwatch.wiring.past import gpus_named, narrowed, past_tape, pricer, rates_on_top

if TYPE_CHECKING:
    from gpuwatch.analysis.scope import Scope
    from gpuwatch.analysis.standing import GpuPast, Standing
    from gpuwatch.settings import Settings

_FURTHER_BACK = timedelta(days=30, hours=4)  # for the longest change, and a look that is a little older than now


class MarketPage(msgspec.Struct, frozen=True, kw_only=True):
    """An answer; without rows nobody has ever looked."""

    rows: Sequence[Standing]
    since: datetime  # from here on, or from the first look
    looked_at: datetime | None  # the newest look
    source: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: `scope` without its GPUs, which are what `gpus` stand for, none: all; `since`: history begins."""

    gpus: Sequence[str]
    scope: Scope
    since: datetime
    until: datetime
    data: Path | None
    under_usd: float | None


def market_page(settings: Settings, asked: Question) -> MarketPage:
    """The answer.

    Raises:
        UsageError: nobody has ever spelled a GPU so, or the file is no good.
        StoreError: the store cannot be read.
    """
    from gpuwatch.analysis.standing import standing_of

    pasts = _of_file(settings, asked, asked.data) if asked.data else _of_store(settings, asked)
    under = None if asked.under_usd is None else round(asked.under_usd * 1e6)
    rows = [standing_of(past, int(asked.since.timestamp()), under) for past in pasts]
    newest_s = max((row.looked_s for row in rows), default=None)
    first = min((past.series.starts_at(0) for past in pasts), default=asked.since)
    return MarketPage(
        rows=rows,
        since=max(first, asked.since),
        looked_at=None if newest_s is None else datetime.fromtimestamp(newest_s, UTC),
        source=clean(asked.data.name) if asked.data else "the store",
    )


def _of_store(settings: Settings, asked: Question) -> list[GpuPast]:
    from gpuwatch.storage.market_page import read_pasts
    from gpuwatch.storage.questions import first_look_in, spellings_in
    from gpuwatch.storage.reading import reading

    rates = {name: 1 + rate for name, rate in rates_on_top(settings).items()}
    with reading(settings.database_url) as executor:
        seen = spellings_in(executor) if asked.gpus else frozenset()
        since = max(_start(asked), first_look_in(executor) or asked.until)
        return read_pasts(executor, _scope(asked, seen), since, asked.until, rates)


def _of_file(settings: Settings, asked: Question, data: Path) -> list[GpuPast]:
    from gpuwatch.analysis.standing import pasts_of

    whole = past_tape(settings, asked.scope, _start(asked), asked.until, data)
    names = ((listing.identity.gpu, listing.gpu_family) for listing in whole.listings)
    tape = narrowed(whole, _scope(asked, frozenset(name for both in names for name in both)))
    return pasts_of(tape, pricer(settings, tape))


def _start(asked: Question) -> datetime:
    return min(asked.since, asked.until - _FURTHER_BACK)


def _scope(asked: Question, seen: frozenset[str]) -> Scope:
    if not asked.gpus:
        return asked.scope
    return msgspec.structs.replace(
        asked.scope, gpus=tuple(gpu for text in asked.gpus for gpu in gpus_named(text, seen))
    )
