"""The price of a part of the market over time: out of the store, or of a file of price rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.market.text import clean
from gpuwatch.wiring.past import gpus_named, narrowed, opened_store, past_tape, pricer, rates_on_top

if TYPE_CHECKING:
    from gpuwatch.analysis.scope import Scope
    from gpuwatch.analysis.summary import Every, Share, Track
    from gpuwatch.analysis.tape import Poll, Spell, Tape
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

EveryOf = Callable[[timedelta, timedelta], "Every"]


class PriceHistory(msgspec.Struct, frozen=True, kw_only=True):
    """An answer; without points nobody has ever looked."""

    gpus: tuple[str, ...]
    track: Track
    every: Every
    under: Sequence[tuple[float, Share]]  # dollars per GPU-hour → how much of the time
    source: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked.

    `scope` without its GPUs: those are what `gpu` stands for. `every`: how long the spans are, by how long all is, and
    how far looks lie apart.
    """

    gpu: str
    scope: Scope
    since: datetime
    until: datetime
    data: Path | None
    every: EveryOf
    zone: tzinfo
    under_usd: Sequence[float]


def price_history(settings: Settings, asked: Question) -> PriceHistory:
    """The answer.

    Raises:
        UsageError: nobody has ever spelled a GPU so, or the file is no good.
        StoreError: the store cannot be read.
    """
    return _of_file(settings, asked) if asked.data else _of_store(settings, asked)


def _of_file(settings: Settings, asked: Question) -> PriceHistory:
    from gpuwatch.analysis.track import track_of

    whole = past_tape(settings, asked.scope, asked.since, asked.until, asked.data)
    gpus = gpus_named(asked.gpu, _named_in(whole))
    tape = narrowed(whole, msgspec.structs.replace(asked.scope, gpus=gpus))
    every = asked.every(timedelta(seconds=(tape.ends_s or 0) - (tape.starts_s or 0)), _apart(tape))
    priced, listed = _pricers(settings, tape)
    found = track_of(tape, listed, priced, every, asked.zone, int(asked.until.timestamp()))
    return PriceHistory(
        gpus=gpus,
        track=found,
        every=every,
        under=_time_under(settings, tape, asked),
        source=clean(asked.data.name) if asked.data else "",
    )


def _of_store(settings: Settings, asked: Question) -> PriceHistory:
    from gpuwatch.storage.questions import first_look, spellings_seen, track

    with opened_store(settings) as database:
        gpus = gpus_named(asked.gpu, spellings_seen(database))
        scope = msgspec.structs.replace(asked.scope, gpus=gpus)
        since = max(asked.since, first_look(database) or asked.until)
        every = asked.every(asked.until - since, timedelta())
        rates = {name: 1 + rate for name, rate in rates_on_top(settings).items()}
        found = track(database, scope, (since, asked.until), spans=(every, asked.zone), rates=rates, trim=True)
        under = _under_in_store(settings, database, msgspec.structs.replace(asked, scope=scope, since=since), found)
    return PriceHistory(gpus=gpus, track=found, every=every, under=under, source="the store")


def _under_in_store(
    settings: Settings, database: Database, asked: Question, found: Track
) -> Sequence[tuple[float, Share]]:
    """To the second, where the prices themselves are still there; else by the hour."""
    from gpuwatch.analysis.summary import hours_under
    from gpuwatch.analysis.tape import Poll
    from gpuwatch.storage.questions import kept_from
    from gpuwatch.storage.tapes import read_looks, read_tape

    if not asked.under_usd:
        return ()
    exact_from = kept_from(database)
    if exact_from is not None and exact_from > asked.since:
        return [(usd, hours_under(found.series, usd * 1e6)) for usd in asked.under_usd]
    part = (database, asked.scope, asked.since, asked.until)
    looks = [Poll(one.look.at_s, one.provider, one.gpu, one.spot, True) for one in read_looks(*part)]
    return _time_under(settings, read_tape(*part), asked, looks)


def _time_under(
    settings: Settings, tape: Tape, asked: Question, looks: Sequence[Poll] | None = None
) -> Sequence[tuple[float, Share]]:
    from gpuwatch.analysis.track import time_under

    priced, _ = _pricers(settings, tape)
    until_s = int(asked.until.timestamp())
    return [(usd, time_under(tape, round(usd * 1e6), priced, until_s, looks)) for usd in asked.under_usd]


def _pricers(settings: Settings, tape: Tape) -> tuple[Callable[[int, Spell], float], Callable[[int, Spell], float]]:
    """What a GPU-hour costs, with the commission, and as it is listed."""
    from gpuwatch.storage.changes import REFERENCE_DISK_GB

    def listed(listing: int, spell: Spell) -> float:
        return spell.listed_microusd_hour(REFERENCE_DISK_GB) / tape.listings[listing].identity.gpu_count

    return pricer(settings, tape), listed


def _apart(tape: Tape) -> timedelta:
    """How far looks lie apart, as a rule."""
    from itertools import pairwise
    from statistics import median

    times = sorted({poll.at_s for poll in tape.polls})
    return timedelta(seconds=median(later - at for at, later in pairwise(times)) if len(times) > 1 else 0)


def _named_in(tape: Tape) -> frozenset[str]:
    """Every GPU name and family in it."""
    return frozenset(name for listing in tape.listings for name in (listing.identity.gpu, listing.gpu_family))
