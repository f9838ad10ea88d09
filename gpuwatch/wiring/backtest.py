"""What a backtest is made of: the watches as the history can judge them, the tape, and the rules that hold for all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.errors import UsageError
from gpuwatch.market.text import clean

if TYPE_CHECKING:
    from gpuwatch.analysis.tape import Tape
    from gpuwatch.backtest.candidates import Candidate
    from gpuwatch.backtest.replay import Setting
    from gpuwatch.backtest.report import Result
    from gpuwatch.settings import Settings
    from gpuwatch.watches.watch import Watch

_P = ParamSpec("_P")
_AUTO_HISTORY = timedelta(days=90)
Stage = Callable[[str, int, int], None]  # what is being done, how far, of how much


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which stretch of the past, and from where."""

    since: datetime
    until: datetime
    data: Path | None = None  # None: the store
    provider: str | None = None


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How the replay is to be judged."""

    job: timedelta | None  # how long a launch is needed; None: its `max_runtime`
    deadline: timedelta  # how far ahead a cheaper offer counts as missed
    strict: bool = False  # a clause that the history cannot judge is a fault


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found."""

    results: Sequence[tuple[Watch, Result | None]]
    ignored: dict[str, tuple[str, ...]]  # watch → clauses that the history cannot judge
    source: str
    spells: int  # prices that were read
    looks: int
    deadline: timedelta


def _at_rest(work: Callable[_P, Backtest]) -> Callable[_P, Backtest]:
    """Half a million small values come and stay: the collector would walk over all of them again and again."""

    @wraps(work)
    def done(*args: _P.args, **kwargs: _P.kwargs) -> Backtest:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return work(*args, **kwargs)
        finally:
            if was_on:
                gc.enable()

    return done


@_at_rest
def run_backtest(settings: Settings, watches: Sequence[Watch], span: Span, terms: Terms, stage: Stage) -> Backtest:
    """What these watches would have done together.

    Raises:
        UsageError: the file is no good, or a clause cannot be judged and must be.
        StoreError: the store cannot be read.
    """
    from gpuwatch.backtest.replay import replay
    from gpuwatch.backtest.report import result_of

    tape = _tape(settings, watches, span, stage)
    setting = _with_limits(settings, _setting(settings, terms), watches, span, stage)
    players, ignored = [], {}
    for watch in watches:
        judged, ignored[watch.name] = _judged(watch, tape, terms)
        players.append((judged, _candidates(judged, tape, setting, stage)))
    courses, book = replay(players, tape, setting, lambda done, of: stage("replaying", done, of))
    results = [(watch, result_of(course, book, terms.deadline)) for watch, course in zip(watches, courses, strict=True)]
    return Backtest(
        results=results,
        ignored=ignored,
        source=clean(tape.source),
        spells=len(tape.spells),
        looks=_looks(tape),
        deadline=terms.deadline,
    )


@_at_rest
def run_sweep(
    settings: Settings, watch: Watch, prices: Sequence[Decimal], span: Span, terms: Terms, stage: Stage
) -> Backtest:
    """One watch at many thresholds, each by itself. Faults as `run_backtest`."""
    from gpuwatch.backtest.sweep import at_price, sweep

    tape = _tape(settings, [watch], span, stage)
    setting = _setting(settings, terms)
    judged, ignored = _judged(watch, tape, terms)
    found = _candidates(at_price(judged, max(prices)), tape, setting, stage)
    results = []
    for number, (price, result) in enumerate(sweep(judged, found, tape, setting, prices, terms.deadline)):
        stage("replaying", number, len(prices))
        results.append((at_price(watch, price), result))
    return Backtest(
        results=results,
        ignored={watch.name: ignored},
        source=clean(tape.source),
        spells=len(tape.spells),
        looks=_looks(tape),
        deadline=terms.deadline,
    )


def _judged(watch: Watch, tape: Tape, terms: Terms) -> tuple[Watch, tuple[str, ...]]:
    from gpuwatch.backtest.offers import judgeable

    judged, ignored = judgeable(watch, tape.listings)
    if ignored and terms.strict and tape.listings:
        raise UsageError(f"watch {watch.name!r}: the history cannot judge {', '.join(ignored)} (--strict)")
    return judged, ignored


def _candidates(watch: Watch, tape: Tape, setting: Setting, stage: Stage) -> list[Candidate]:
    from gpuwatch.backtest.candidates import candidates

    def told(done: int, of: int) -> None:
        stage("judging prices", done, of)

    return candidates(watch, tape, setting.commissions, setting.reference_disk_gb, told)


def _tape(settings: Settings, watches: Sequence[Watch], span: Span, stage: Stage) -> Tape:
    """What was live; and list prices, where a watch takes them."""
    from gpuwatch.analysis.scope import Scope
    from gpuwatch.wiring.past import past_tape

    stage("reading", 0, 1)
    gpus = tuple(dict.fromkeys(gpu for watch in watches for gpu in watch.gpu_names))
    scopes = [Scope(gpus=gpus, provider=span.provider)]
    if span.data is None and span.provider is None:
        scopes += [Scope(gpus=gpus, provider=f"{name}:listed") for name in _listing(settings, watches)]
    return _joined([past_tape(settings, scope, span.since, span.until, span.data) for scope in scopes])


def _listing(settings: Settings, watches: Sequence[Watch]) -> list[str]:
    """The providers whose list prices a watch takes."""
    from gpuwatch import providers
    from gpuwatch.market.offer import OfferKind
    from gpuwatch.wiring.access import is_asked

    listing = [name for name in settings.providers if OfferKind.LISTED in providers.info(name).kinds]
    return [name for name in listing if any(is_asked(name, watch) and watch.listed for watch in watches)]


def _joined(tapes: Sequence[Tape]) -> Tape:
    from gpuwatch.analysis.tape import Tape

    first, *others = tapes
    if not any(tape.polls for tape in others):
        return first
    listings, spells, polls = list(first.listings), list(first.spells), list(first.polls)
    for tape in others:
        spells += [spell._replace(listing=spell.listing + len(listings)) for spell in tape.spells]
        listings += tape.listings
        polls += tape.polls
    spells.sort(key=lambda spell: (spell.from_s, spell.listing))
    polls.sort(key=lambda poll: poll.at_s)
    return Tape(listings=tuple(listings), spells=spells, polls=polls, source=first.source)


def _setting(settings: Settings, terms: Terms) -> Setting:
    from gpuwatch import providers
    from gpuwatch.analysis.series import LOOK_LASTS_S
    from gpuwatch.backtest.replay import Setting
    from gpuwatch.storage.changes import REFERENCE_DISK_GB
    from gpuwatch.wiring.access import unable
    from gpuwatch.wiring.rules import max_ages

    least = timedelta(seconds=LOOK_LASTS_S)  # a look counts so long wherever the past is asked
    known = {name: providers.info(name).commission for name in providers.names()}
    cannot = unable(settings)
    return Setting(
        commissions=known | {name: provider.commission for name, provider in settings.providers.items()},
        max_age=least,
        max_ages={name: max(age, least) for name, age in max_ages(settings, list(settings.providers)).items()},
        budget=settings.budget,
        zone=ZoneInfo(settings.timezone),
        job=terms.job,
        reference_disk_gb=REFERENCE_DISK_GB,
        able=lambda found: cannot.able(found, dry_run=True),  # without any key: as with one
    )


def _with_limits(settings: Settings, setting: Setting, watches: Sequence[Watch], span: Span, stage: Stage) -> Setting:
    """`max_price = "auto"`: the limits that the daemon would have had, out of what was known at each moment."""
    from gpuwatch.engine.auto_price import AutoPrices
    from gpuwatch.engine.past_waits import RECKONED_EVERY, PastWaits

    auto = [watch for watch in watches if watch.auto is not None]
    if not auto:
        return setting
    longer = msgspec.structs.replace(span, since=span.since - _AUTO_HISTORY)  # it was known when the replay begins
    waits = PastWaits(_tape(settings, auto, longer, stage), setting.commissions, setting.reference_disk_gb)
    return msgspec.structs.replace(setting, limit=AutoPrices(waits, RECKONED_EVERY).renew)


def _looks(tape: Tape) -> int:
    return len({poll.at_s for poll in tape.polls})
