"""Market histories for tests: explicit polls, and random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from gpuwatch.domain.forecasts.backtest.replay import ReplaySettings, WatchReplay, replay
from gpuwatch.domain.forecasts.backtest.replayed_candidates import find_candidates
from gpuwatch.domain.history.market_history import MarketHistory, MarketPoll, OfferInterval
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from tests.builders import a_listing, a_watch

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday
START_S = int(NOON.timestamp())
Prices = Mapping[str, float]  # machine → dollars an hour, listed


def history_of(
    looks: Sequence[tuple[float, Prices | None]], gpu: str = "H100 SXM", spot: bool = False, provider: str = "vastai"
) -> MarketHistory:
    """One GPU at one provider. `looks`: (seconds after noon, offers; None: no answer)."""
    machines = sorted({machine for _, prices in looks for machine in prices or ()})
    listings = tuple(
        a_listing(machine, provider=provider, gpu=gpu, spot=spot, offer_id=f"9{machine}", gpu_memory_gib=80.0)
        for machine in machines
    )
    seen = [(START_S + int(after_s), prices) for after_s, prices in looks]
    intervals = [interval for number, machine in enumerate(machines) for interval in _spells(number, machine, seen)]
    polls = [MarketPoll(at_s, provider, "", spot, prices is not None, failed=prices is None) for at_s, prices in seen]
    return MarketHistory(
        listings=listings, intervals=sorted(intervals, key=lambda s: (s.from_s, s.listing)), polls=polls, source="t"
    )


def together(first: MarketHistory, second: MarketHistory) -> MarketHistory:
    """Both markets at once."""
    moved = [interval._replace(listing=interval.listing + len(first.listings)) for interval in second.intervals]
    return MarketHistory(
        listings=first.listings + second.listings,
        intervals=sorted([*first.intervals, *moved], key=lambda interval: (interval.from_s, interval.listing)),
        polls=sorted([*first.polls, *second.polls], key=lambda poll: poll.at_s),
        source="t",
    )


def _spells(number: int, machine: str, seen: Sequence[tuple[int, Prices | None]]) -> list[OfferInterval]:
    made: list[OfferInterval] = []
    for at_s, prices in seen:
        if prices is None:
            continue
        price = prices.get(machine)
        micro = None if price is None else round(price * 1e6)
        last = made[-1] if made and made[-1].ended_s is None else None
        if last is not None and last.machine_microusd_hour == micro:
            made[-1] = last._replace(seen_s=at_s)
            continue
        if last is not None:
            made[-1] = last._replace(ended_s=at_s)
        if micro is not None:
            made.append(OfferInterval(number, at_s, at_s, None, micro, None))
    return made


def a_rule(max_price: float = 2.0, **changes: Any) -> Watch:
    """A watch for H100 SXM that alerts once."""
    plain = {"gpu_names": ("H100 SXM",), "max_price_usd_gpu_hour": Decimal(str(max_price)), "repeat_every_s": None}
    return a_watch(**(plain | changes))


def a_renting_rule(max_price: float = 2.0, hours: float = 1.0, **changes: Any) -> Watch:
    """The same, but it rents: one at a time, as often as possible."""
    spec = LaunchSpec(max_active=1, max_total=0, max_runtime_s=hours * 3600)
    return a_rule(max_price, **({"action": Action.LAUNCH, "launch": spec} | changes))


def a_setting(**changes: Any) -> ReplaySettings:
    """Without commissions: the paid price is the listed one."""
    return ReplaySettings(**({"commissions": {}, "max_age": timedelta(hours=3)} | changes))


def played(market_history: MarketHistory, *watches: Watch, **setting: Any) -> list[WatchReplay]:
    """Replay these watches."""
    rules = a_setting(**setting)
    found = [(watch, find_candidates(watch, market_history, rules.commissions, 0.0)) for watch in watches]
    return replay(found, market_history, rules)[0]


def reported(watch_replay: WatchReplay) -> list[tuple[float, str, str | None, float | None, int]]:
    """Return (seconds after noon, reason, machine, dollars per GPU-hour, started launches) of each turn."""
    return [
        (
            (turn.at - NOON).total_seconds(),
            turn.reason.value,
            turn.best.offer.machine_id if turn.best else None,
            turn.best.price_microusd_gpu_hour / 1e6 if turn.best else None,
            len(turn.begun),
        )
        for turn in watch_replay.steps
    ]


def a_story(most: int = 25) -> st.SearchStrategy[list[tuple[float, Prices | None]]]:
    """Polls of three machines whose prices appear, disappear and change, seconds to hours apart; some fail."""
    prices = st.dictionaries(st.sampled_from("abc"), st.sampled_from([1.0, 1.5, 1.9, 2.0, 2.1, 3.0]), max_size=3)
    step = st.tuples(st.sampled_from([1, 30, 300, 3600, 4 * 3600]), st.one_of(prices, prices, prices, st.none()))

    def timed(steps: list[tuple[int, Prices | None]]) -> list[tuple[float, Prices | None]]:
        at, looks = 0.0, []
        for wait, prices in steps:
            looks.append((at, prices))
            at += wait
        return looks

    return st.lists(step, min_size=1, max_size=most).map(timed)
