"""What `gpuwatch advise` answers out of: the past of a part of the market, as a series and as lives of offers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.wiring.past import past_tape, pricer

if TYPE_CHECKING:
    from gpuwatch.analysis.advice import Advice
    from gpuwatch.analysis.scope import Scope
    from gpuwatch.analysis.snipe import Snipe
    from gpuwatch.settings import Settings

_MICRO = 1e6


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked."""

    scope: Scope
    since: datetime
    until: datetime
    data: Path | None
    hours: int  # until the deadline
    under_usd: float | None  # for the odds; None: the price that most starts met within the deadline
    every_s: float  # between two looks
    is_until_now: bool = True  # False: "now" is the end of the stretch that is asked about


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What is known."""

    advice: Advice | None
    why_none: str | None
    snipe: Snipe | None
    under_usd: float | None
    since: datetime | None  # the first hour anybody looked in
    until: datetime | None
    source: str


def _as_of_now(advice: Advice, age_s: float) -> Advice:
    """What was seen long ago says nothing of the price now; the limits hold as they did."""
    from gpuwatch.analysis.advice import Verdict
    from gpuwatch.analysis.series import LOOK_LASTS_S
    from gpuwatch.watches.durations import format_duration

    if age_s <= LOOK_LASTS_S:
        return advice
    why = f"the newest look is {format_duration(age_s // 3600 * 3600)} old: what it costs now is not known"
    return msgspec.structs.replace(advice, now_usd=None, verdict=Verdict.WAIT, why=why)


def answer(settings: Settings, wanted: Wanted) -> Answered:
    """Raises UsageError for a file that is no good, StoreError for a store that cannot be read."""
    from gpuwatch.analysis.advice import advise, too_little
    from gpuwatch.analysis.series import series_of
    from gpuwatch.analysis.snipe import snipe
    from gpuwatch.analysis.survival import bounded_lives_under

    tape = past_tape(settings, wanted.scope, wanted.since, wanted.until, wanted.data)
    price = pricer(settings, tape)
    prices = [price(spell.listing, spell) for spell in tape.spells]
    of = dict(zip(map(id, tape.spells), prices, strict=True))
    series = series_of(tape, lambda _, spell: of[id(spell)])
    why_none = too_little(series, wanted.hours)
    advice = None if why_none else advise(series, wanted.hours)
    if advice is not None and wanted.data is None and wanted.is_until_now:
        advice = _as_of_now(advice, wanted.until.timestamp() - (tape.ends_s or 0))
    under = wanted.under_usd
    if under is None and advice is not None:
        under = advice.reached[1][1]
    lives = [] if under is None else bounded_lives_under(tape, under * _MICRO + 0.5, lambda _, spell: of[id(spell)])
    return Answered(
        advice=advice,
        why_none=why_none,
        snipe=snipe(lives, tape, wanted.every_s),
        under_usd=under,
        since=series.starts_at(0) if len(series.lows) else None,
        until=series.starts_at(len(series.lows)) if len(series.lows) else None,
        source=series.source,
    )
